//! Requests with which the kernels are tried beyond the conformance suite: the common layouts in every way that the
//! general cases do not reach. Compared with core's reference, bit for bit.

use condprog_conformance::REQUIRE_VARIABLE;
use condprog_conformance::input::Stream;
use condprog_core::{Decoder, Dtype, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table};
use condprog_cuda_host::{HostDecoder, HostError, Order, Program, Shape};
use condprog_kernels::cuda::Kernel;

/// Reports a test that cannot run: nothing, or a failure where the environment requires the kernels on the CPU.
pub(crate) fn not_run(why: &HostError) {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "cuda-host"), "required, and not run: {why}");
    eprintln!("not run: {why}");
}

/// The common layouts, in the order of the kernels.
pub(crate) fn common_layouts() -> Vec<Layout> {
    let mut layouts: Vec<_> = Kernel::ALL.iter().filter_map(|kernel| kernel.layout).collect();
    layouts.dedup();
    layouts.truncate(layouts.len() / Dtype::ALL.len());
    layouts.into_iter().map(|(rate, dim)| layout(rate, dim)).collect()
}

pub(crate) fn layout(quarters: u32, dim: u32) -> Layout {
    Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap()
}

/// Rows by the reference, as bytes.
pub(crate) fn expected(table: Table<'_>, ids: &[i64], dtype: Dtype) -> Vec<u8> {
    let reference = ReferenceDecoder::new(table);
    let values = ids.len() * table.shape().dim as usize;
    let mut halves = vec![0u16; if dtype == Dtype::F32 { 0 } else { values }];
    let mut singles = vec![0f32; if dtype == Dtype::F32 { values } else { 0 }];
    let output = match dtype {
        Dtype::Bf16 => Output::Bf16(&mut halves),
        Dtype::F16 => Output::F16(&mut halves),
        Dtype::F32 => Output::F32(&mut singles),
    };
    reference.decode(ids, Missing::Zero, output).unwrap();
    let halves = halves.iter().flat_map(|value| value.to_le_bytes());
    halves.chain(singles.iter().flat_map(|value| value.to_le_bytes())).collect()
}

/// A request: `count` ids, some of them missing, some of them twice.
fn ids(count: usize, rows: u64, stream: &mut Stream) -> Vec<i64> {
    let id = |stream: &mut Stream| match stream.below(16) {
        0 => [-1, rows as i64, i64::MIN, i64::MAX, -(rows as i64), rows as i64 + (1 << 32)][stream.below(6) as usize],
        _ => i64::from(stream.below(rows as u32)),
    };
    (0..count).map(|_| id(stream)).collect()
}

/// A table in `segments` segments of these layouts, cyclically, with an empty segment among them.
pub(crate) struct Owned {
    parts: Vec<(u64, Layout, Vec<u8>)>,
}

impl Owned {
    pub(crate) fn new(layouts: &[Layout], segments: usize, stream: &mut Stream) -> Owned {
        let part = |index: usize, stream: &mut Stream| {
            let layout = layouts[index % layouts.len()];
            let rows = if index == 1 { 0 } else { u64::from(1 + stream.below(20)) };
            let mut records = stream.bytes(rows as usize * layout.record_bytes());
            if index == 0 {
                // A row of zeros in spite of its code and variant.
                let scale = layout.record_bytes() - 2;
                records[scale..scale + 2].copy_from_slice(&[0x00, 0x50]);
            }
            (rows, layout, records)
        };
        Owned { parts: (0..segments).map(|index| part(index, stream)).collect() }
    }

    pub(crate) fn segments(&self) -> Vec<Segment<'_>> {
        self.parts.iter().map(|(rows, layout, records)| Segment { rows: *rows, layout: *layout, records }).collect()
    }
}

/// Runs requests against one table and compares rows and first missing position.
pub(crate) fn compare(
    program: &Program,
    order: Order,
    shape: Shape,
    table: Table<'_>,
    ids: &[i64],
) -> Result<(), String> {
    let text = |error: HostError| error.to_string();
    let decoder = HostDecoder::new(program, order, shape, table).map_err(text)?;
    let first = ids.iter().position(|&id| !(0..table.shape().rows as i64).contains(&id)).map(|at| at as u64);
    for dtype in Dtype::ALL {
        let (rows, missing) = decoder.rows(ids, dtype).map_err(text)?;
        if rows != expected(table, ids, dtype) {
            let layout = table.segments()[0].layout;
            return Err(format!(
                "{dtype} rows of {layout:?} and so on differ, {order:?}, {shape:?}, {} ids",
                ids.len()
            ));
        }
        if missing != first {
            return Err(format!("first missing position is {missing:?}, expected {first:?}"));
        }
    }
    Ok(())
}

pub(crate) const ORDERS: [Order; 3] = [Order::Forward, Order::Reverse, Order::Shuffled];

/// Common and uncommon layouts, one and several segments, few and many ids, in every order.
pub(crate) fn exercise(program: &Program, counts: &[usize], orders: &[Order]) -> Result<(), String> {
    let mut stream = Stream::new(4);
    let mut tables: Vec<Vec<Layout>> = common_layouts().into_iter().map(|layout| vec![layout]).collect();
    // Any layout: rates that are no whole bits, rows that are no whole groups, codes shorter than a window, mixed rates.
    tables.push(vec![layout(7, 36)]);
    tables.push(vec![layout(4, 17)]);
    tables.push(vec![layout(16, 5)]);
    tables.push(vec![layout(8, 256), layout(13, 256), layout(5, 256)]);
    tables.push(vec![layout(8, 1024), layout(4, 1024)]);
    for layouts in tables {
        for segments in [1, 4] {
            let owned = Owned::new(&layouts, segments, &mut stream);
            let segments = owned.segments();
            let table = Table::new(&segments).map_err(|error| error.to_string())?;
            for &count in counts {
                let ids = ids(count, table.shape().rows, &mut stream);
                let id_bytes = if stream.below(2) == 0 { 4 } else { 8 };
                for &order in orders {
                    compare(program, order, Shape { id_bytes, ..Shape::SMALL }, table, &ids)?;
                }
            }
        }
    }
    Ok(())
}

/// Offsets beyond 32 bits: of records, of ids and of the output.
pub(crate) fn exercise_far(program: &Program) -> Result<(), String> {
    let text = |error: HostError| error.to_string();
    for (layout, dtype) in [(layout(8, 256), Dtype::Bf16), (layout(8, 160), Dtype::F32), (layout(9, 64), Dtype::F16)] {
        let mut stream = Stream::new(layout.dim());
        let records = stream.bytes(24 * layout.record_bytes());
        let segments = [Segment { rows: 24, layout, records: &records }];
        let near = Table::new(&segments).map_err(|error| error.to_string())?;
        let rows = (5 << 30) / layout.record_bytes() as u64;
        let far = HostDecoder::with_last_records(program, Order::Forward, Shape::SMALL, layout, rows, &records);
        let far = far.map_err(text)?;
        let near_ids: Vec<i64> = (0..13).map(|_| i64::from(stream.below(24))).collect();
        let far_ids: Vec<i64> = near_ids.iter().map(|id| id + rows as i64 - 24).collect();
        // The ids are all that the last block has.
        let count = (5 << 30) / (u64::from(layout.dim()) * dtype.size() as u64) / 16 * 16 + near_ids.len() as u64;
        let (got, missing) = far.last_rows(&far_ids, count, dtype).map_err(text)?;
        if got != expected(near, &near_ids, dtype) || missing.is_some() {
            return Err(format!("{dtype} rows of {layout:?} differ beyond 4 GiB"));
        }
    }
    // -1 in 4 bytes is not row 2^32 - 1.
    let (layout, shape) = (layout(8, 8), Shape { id_bytes: 4, ..Shape::SMALL });
    let far =
        HostDecoder::with_last_records(program, Order::Forward, shape, layout, (1 << 32) + 9, &[]).map_err(text)?;
    match far.rows(&[5, -1], Dtype::Bf16).map_err(text)?.1 {
        Some(1) => Ok(()),
        other => Err(format!("first missing position is {other:?}, expected 1")),
    }
}
