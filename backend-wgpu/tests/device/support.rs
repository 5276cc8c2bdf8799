//! What the tests share: the GPU of this environment, tables, and the reference's rows to compare with.

use condprog_conformance::REQUIRE_VARIABLE;
use condprog_conformance::input::random_records;
use condprog_core::{
    BackendError, Decoder, Dtype, ErrorKind, Layout, Missing, Output, Rate, ReferenceDecoder, Segment, Table,
};
use condprog_wgpu::{Gpu, Options, WgpuDecoder};

/// Opens the GPU of this environment. `None`, and a line that says so, where there is none and none is required.
pub(crate) fn gpu(options: &Options) -> Option<Gpu> {
    match Gpu::open(options) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
            assert!(!required.split(',').any(|name| name.trim() == "wgpu"), "{error}, but wgpu is required");
            println!("wgpu: no device, test not run ({error})");
            None
        }
    }
}

/// Rows of one rate: random bytes, every one of which is a valid record.
pub(crate) struct Random {
    rows: u32,
    layout: Layout,
    records: Vec<u8>,
}

impl Random {
    pub(crate) fn new(rows: u32, dim: u32, quarters: u32, seed: u32) -> Random {
        let layout = Layout::new(dim, Rate::from_quarters(quarters).unwrap()).unwrap();
        Random { rows, layout, records: random_records(layout, rows, seed) }
    }

    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { rows: u64::from(self.rows), layout: self.layout, records: &self.records }
    }
}

/// Room for the rows of a request, filled with other bits than any decoder writes.
pub(crate) enum Rows {
    Bf16(Vec<u16>),
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl Rows {
    pub(crate) fn new(dtype: Dtype, values: usize) -> Rows {
        match dtype {
            Dtype::Bf16 => Rows::Bf16(vec![0x7fc1; values]),
            Dtype::F16 => Rows::F16(vec![0x7e01; values]),
            Dtype::F32 => Rows::F32(vec![f32::NAN; values]),
        }
    }

    pub(crate) fn output(&mut self) -> Output<'_> {
        match self {
            Rows::Bf16(rows) => Output::Bf16(rows),
            Rows::F16(rows) => Output::F16(rows),
            Rows::F32(rows) => Output::F32(rows),
        }
    }

    pub(crate) fn bits(&self) -> Vec<u32> {
        match self {
            Rows::Bf16(rows) | Rows::F16(rows) => rows.iter().map(|&bits| bits.into()).collect(),
            Rows::F32(rows) => rows.iter().map(|value| value.to_bits()).collect(),
        }
    }
}

/// The bits of a request, missing ids as zeros.
pub(crate) fn bits<D: Decoder>(decoder: &D, ids: &[i64], dtype: Dtype) -> Vec<u32>
where
    D::Error: std::fmt::Debug,
{
    let mut rows = Rows::new(dtype, ids.len() * decoder.shape().dim as usize);
    decoder.decode(ids, Missing::Zero, rows.output()).unwrap();
    rows.bits()
}

/// Asserts that a decoder gives the reference's bits in every format.
pub(crate) fn assert_exact(decoder: &WgpuDecoder, table: Table<'_>, ids: &[i64]) {
    for dtype in Dtype::ALL {
        let expected = bits(&ReferenceDecoder::new(table), ids, dtype);
        assert!(bits(decoder, ids, dtype) == expected, "{dtype}: rows differ from the reference's");
    }
}
