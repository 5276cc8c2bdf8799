//! Properties over random layouts, records, segments and requests: all CPU instruction sets against the reference, and what goes
//! into a record comes out of it.

use condprog_core::encoder::{self, Outcome, ScaleRule, Search};
use condprog_core::hazmat::write_code;
use condprog_core::{
    Decoder, Dtype, Encoder, Job, Layout, Missing, Output, Rate, Record, ReferenceDecoder, Scale, Segment, Table,
    record, trellis,
};
use condprog_cpu::{CpuDecoder, CpuEncoder, Isa};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn rates() -> impl Strategy<Value = Rate> {
    (4..=16u32).prop_map(|quarters| Rate::from_quarters(quarters).unwrap())
}

/// Any layout of format version 1 up to a width.
fn layouts(widest: u32) -> impl Strategy<Value = Layout> {
    (rates(), 4..=widest).prop_filter_map("no such layout", |(rate, dim)| Layout::new(dim, rate).ok())
}

/// Segments of one width: layouts, row counts and records.
fn tables() -> impl Strategy<Value = Vec<(Layout, u64, Vec<u8>)>> {
    layouts(300).prop_flat_map(|first| {
        let same_width = rates().prop_map(move |rate| Layout::new(first.dim(), rate).unwrap_or(first));
        let segment = (same_width, 0..20u64).prop_flat_map(|(layout, rows)| {
            let bytes = rows as usize * layout.record_bytes();
            vec(any::<u8>(), bytes).prop_map(move |records| (layout, rows, records))
        });
        vec(segment, 1..5)
    })
}

/// Ids that name rows of small tables, and ids that name none.
fn ids() -> impl Strategy<Value = Vec<i64>> {
    vec(prop_oneof![6 => 0..60i64, 1 => any::<i64>(), 1 => Just(-1)], 0..80)
}

fn decode<D: Decoder>(decoder: &D, ids: &[i64], dtype: Dtype) -> Vec<u32> {
    let len = ids.len() * decoder.shape().dim as usize;
    let (mut halves, mut singles) = (vec![0x7fa5; len], vec![f32::NAN; len]);
    let output = match dtype {
        Dtype::Bf16 => Output::Bf16(&mut halves),
        Dtype::F16 => Output::F16(&mut halves),
        Dtype::F32 => Output::F32(&mut singles),
    };
    decoder.decode(ids, Missing::Zero, output).unwrap_or_else(|error| panic!("{error}"));
    match dtype {
        Dtype::F32 => singles.iter().map(|value| value.to_bits()).collect(),
        _ => halves.iter().map(|&value| value.into()).collect(),
    }
}

/// So many cases, and failures kept beside this file.
fn config(cases: u32) -> ProptestConfig {
    let failures = FileFailurePersistence::Direct("tests/properties.regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(failures)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn every_isa_decodes_as_the_reference(parts in tables(), ids in ids()) {
        let segments: Vec<_> =
            parts.iter().map(|(layout, rows, records)| Segment { rows: *rows, layout: *layout, records }).collect();
        let table = Table::new(&segments).unwrap();
        for dtype in Dtype::ALL {
            let expected = decode(&ReferenceDecoder::new(table), &ids, dtype);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
                let got = decode(&CpuDecoder::with_isa(table, isa).unwrap(), &ids, dtype);
                prop_assert_eq!(&got, &expected, "{} {}", isa, dtype);
            }
        }
    }

    #[test]
    fn a_row_is_its_record_wherever_it_lies(parts in tables(), row in 0..60u64) {
        // One row of a table, and the same record as a table of its own.
        let segments: Vec<_> =
            parts.iter().map(|(layout, rows, records)| Segment { rows: *rows, layout: *layout, records }).collect();
        let table = Table::new(&segments).unwrap();
        let isa = Isa::best();
        let alone = table.record(row).map(|(layout, records)| [Segment { rows: 1, layout, records }]);
        for dtype in Dtype::ALL {
            let got = decode(&CpuDecoder::with_isa(table, isa).unwrap(), &[row as i64], dtype);
            let expected = match &alone {
                Some(segments) => {
                    decode(&CpuDecoder::with_isa(Table::new(segments).unwrap(), isa).unwrap(), &[0], dtype)
                }
                None => vec![0; table.shape().dim as usize],
            };
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_path_comes_back_from_its_code(
        (layout, mut code) in layouts(300).prop_flat_map(|l| (Just(l), vec(any::<u8>(), l.code_bytes()))),
        scale in any::<u16>().prop_map(Scale::from_bits),
    ) {
        condprog_conformance::input::clear_padding(layout, &mut code);
        let path: Vec<u16> = (0..layout.dim()).map(|t| trellis::state(layout, &code, t)).collect();
        let mut written = vec![0xff; layout.code_bytes()];
        write_code(layout, &path, &mut written);
        prop_assert_eq!(&written, &code);
        let mut bytes = vec![0; layout.record_bytes()];
        record::write(layout, &code, scale, &mut bytes);
        let record = Record::new(layout, &bytes);
        prop_assert_eq!(record, Record { code: &code, scale });
        prop_assert!(record.padding_is_zero(layout));
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn every_isa_encodes_as_the_reference(
        layout in layouts(40),
        rows in vec(vec(prop_oneof![4 => -2.0..2.0f32, 1 => any::<f32>(), 1 => Just(0.0)], 40), 1..6),
        effort in 0..3u8,
        rule in prop_oneof![Just(ScaleRule::Norm), Just(ScaleRule::Projection), Just(ScaleRule::LeastSquares)],
    ) {
        let search = Search::effort(effort);
        let job = Job::new(layout, rule, search);
        let rows: Vec<f32> = rows.iter().flat_map(|row| &row[..layout.dim() as usize]).copied().collect();
        let count = rows.len() / layout.dim() as usize;
        let mut expected = vec![0; count * layout.record_bytes()];
        // Texts: a NaN in an error does not equal itself.
        let text = |outcomes: Vec<Result<Outcome, encoder::EncodeError>>| format!("{outcomes:?}");
        let outcomes = text(condprog_conformance::reference(job.clone(), &rows, &mut expected));
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
            let mut got = vec![0xa5; expected.len()];
            let mut became = vec![Ok(Outcome::Zero); count];
            let encoder = CpuEncoder::with_isa(job.clone(), isa).unwrap();
            encoder.encode(&rows, &mut got, &mut became).unwrap();
            prop_assert_eq!(&text(became), &outcomes);
            prop_assert_eq!(&got, &expected, "{}", isa);
        }
        for record in expected.chunks_exact(layout.record_bytes()) {
            prop_assert!(Record::new(layout, record).padding_is_zero(layout));
        }
    }
}
