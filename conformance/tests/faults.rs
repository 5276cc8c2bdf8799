//! The suite notices faults: decoders with one fault each, all of which must fail, and a backend without a device.

use condprog_conformance::{Backend, DECODE_CASES, Verdict, check_decoder, check_with_device, first_failure};
use condprog_core::{
    BackendError, Batch, Decoder, ErrorKind, Layout, Output, Record, ShapeMismatch, Table, TableShape, decoder,
    rounding,
};

/// What is wrong with a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// States start one bit late.
    WindowLate,
    /// The end of the code is followed by zeros instead of its start.
    NoWrap,
    /// The code wraps at the end of its last byte.
    WrapAtByte,
    /// Bits are taken from the least significant one on.
    BitOrder,
    /// Fractional rates start at the rounded-up bit.
    StartRoundedUp,
    /// The hash lacks its linear term.
    Hash,
    /// The variant is ignored.
    Variant,
    /// Only three bits of the variant count.
    VariantCut,
    /// The sign is the other way.
    Sign,
    /// The exponent is one too large.
    Exponent,
    /// The mantissa is ignored.
    Mantissa,
    /// Scales below 64 are taken for zero rows.
    ZeroRow,
    /// A zero row gives zeros with signs.
    SignedZero,
    /// 16-bit formats drop bits instead of rounding.
    Truncate,
    /// Ties go up instead of to even.
    TiesUp,
    /// f16 has no subnormal numbers.
    Flush,
    /// f16 has no infinities: what is too large becomes the largest number.
    Saturate,
    /// Ids are cut to 32 bits.
    ShortIds,
    /// Ids of no row are left out.
    MissingUntouched,
    /// The last row of a table is taken for missing.
    LastRow,
    /// The first row of a segment is read from the one before.
    Seam,
    /// Every segment has the first one's layout.
    FirstLayout,
    /// The second of two equal ids is left out.
    Duplicates,
    /// Requests are served in the order of their ids.
    Sorted,
    /// Only the first 65,535 ids are served.
    GroupLimit,
    /// The shape of a batch is not looked at.
    Mismatch,
    /// It panics on empty requests.
    PanicOnEmpty,
}

const FAULTS: [Fault; 27] = [
    Fault::WindowLate,
    Fault::NoWrap,
    Fault::WrapAtByte,
    Fault::BitOrder,
    Fault::StartRoundedUp,
    Fault::Hash,
    Fault::Variant,
    Fault::VariantCut,
    Fault::Sign,
    Fault::Exponent,
    Fault::Mantissa,
    Fault::ZeroRow,
    Fault::SignedZero,
    Fault::Truncate,
    Fault::TiesUp,
    Fault::Flush,
    Fault::Saturate,
    Fault::ShortIds,
    Fault::MissingUntouched,
    Fault::LastRow,
    Fault::Seam,
    Fault::FirstLayout,
    Fault::Duplicates,
    Fault::Sorted,
    Fault::GroupLimit,
    Fault::Mismatch,
    Fault::PanicOnEmpty,
];

struct Faulty<'t>(Table<'t>, Fault);

impl Faulty<'_> {
    fn level(&self, layout: Layout, record: &Record<'_>, t: u32) -> i8 {
        let fault = self.1;
        let (bits, quarters, program) = (layout.code_bits(), layout.rate().quarters(), layout.program());
        let wrap = if fault == Fault::WrapAtByte { bits.next_multiple_of(8) } else { bits };
        let start = match fault {
            Fault::WindowLate => t * quarters / 4 + 1,
            Fault::StartRoundedUp => (t * quarters).div_ceil(4),
            _ => t * quarters / 4,
        };
        let state = (start..start + 16).fold(0u16, |state, at| {
            if fault == Fault::NoWrap && at >= bits {
                return state << 1;
            }
            let at = at % wrap;
            let shift = if fault == Fault::BitOrder { at % 8 } else { 7 - at % 8 };
            state << 1 | u16::from(record.code[(at / 8) as usize] >> shift & 1)
        });
        let variant = match fault {
            Fault::Variant => 0,
            Fault::VariantCut => record.scale.variant() & 7,
            _ => record.scale.variant(),
        };
        let hash = match fault {
            Fault::Hash => program.hash(state, variant).wrapping_sub(state),
            _ => program.hash(state, variant),
        };
        let level = program.level(hash);
        if fault == Fault::Sign { -level } else { level }
    }

    /// The bits of one value in f32.
    fn single(&self, record: &Record<'_>, level: i8) -> u32 {
        let scale = record.scale;
        let bits = rounding::f32_bits(scale, level);
        match self.1 {
            Fault::Exponent if bits != 0 => bits + (1 << 23),
            Fault::Mantissa if bits != 0 => {
                let power = condprog_core::Scale::from_bits(scale.to_bits() & !63);
                if power.is_zero() { bits } else { rounding::f32_bits(power, level) }
            }
            Fault::ZeroRow if scale.exponent() == 0 => 0,
            Fault::SignedZero if scale.is_zero() && level < 0 => 0x8000_0000,
            _ => bits,
        }
    }

    fn half(&self, record: &Record<'_>, level: i8, is_bf16: bool) -> u16 {
        let bits = self.single(record, level);
        let scale = record.scale;
        let right = if is_bf16 {
            ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
        } else if bits == rounding::f32_bits(scale, level) {
            rounding::f16_bits(scale, level)
        } else {
            // The faults of the f32 number show in f32.
            (bits >> 16 & 0x8000) as u16
        };
        match self.1 {
            Fault::Truncate if is_bf16 => (bits >> 16) as u16,
            Fault::TiesUp if is_bf16 => ((bits + 0x8000) >> 16) as u16,
            Fault::Flush if !is_bf16 && right & 0x7c00 == 0 => right & 0x8000,
            Fault::Saturate if !is_bf16 && right & 0x7c00 == 0x7c00 => right - 1,
            _ => right,
        }
    }

    fn rows<T: Copy>(&self, ids: &[i64], out: &mut [T], zero: T, value: impl Fn(&Record<'_>, i8) -> T) {
        let (fault, shape) = (self.1, self.0.shape());
        assert!(fault != Fault::PanicOnEmpty || !ids.is_empty(), "no ids");
        let mut order = ids.to_vec();
        if fault == Fault::Sorted {
            order.sort_unstable();
        }
        for (index, (&id, out)) in order.iter().zip(out.chunks_exact_mut(shape.dim as usize)).enumerate() {
            let id = if fault == Fault::ShortIds { i64::from(id as i32) } else { id };
            let is_skipped = match fault {
                Fault::GroupLimit => index >= 65_535,
                Fault::Duplicates => index > 0 && id == order[index - 1],
                _ => false,
            };
            let last = fault == Fault::LastRow && id == shape.rows as i64 - 1;
            let names_row = decoder::names_row(id, shape.rows) && !last;
            if is_skipped || fault == Fault::MissingUntouched && !names_row {
                continue;
            }
            if !names_row {
                out.fill(zero);
                continue;
            }
            let (layout, bytes) = self.record(id as u64);
            let record = Record::new(layout, bytes);
            for (t, out) in (0..).zip(out) {
                *out = value(&record, self.level(layout, &record, t));
            }
        }
    }

    fn record(&self, row: u64) -> (Layout, &[u8]) {
        let (layout, record) = self.0.record(row).expect("the id names a row");
        let first = self.0.segments()[0];
        match self.1 {
            Fault::Seam if row == first.rows && row > 0 => self.0.record(row - 1).expect("a row before"),
            Fault::FirstLayout if first.layout.record_bytes() <= record.len() => {
                (first.layout, &record[..first.layout.record_bytes()])
            }
            _ => (layout, record),
        }
    }
}

impl Decoder for Faulty<'_> {
    type Error = ShapeMismatch;

    fn shape(&self) -> TableShape {
        self.0.shape()
    }

    fn decode_batch(&self, batch: Batch<'_>) -> Result<(), ShapeMismatch> {
        match ShapeMismatch::check(&batch, self.shape()) {
            Err(_) if self.1 == Fault::Mismatch => return Ok(()),
            checked => checked?,
        }
        let (ids, output) = batch.into_parts();
        match output {
            Output::Bf16(out) => self.rows(ids, out, 0, |record, level| self.half(record, level, true)),
            Output::F16(out) => self.rows(ids, out, 0, |record, level| self.half(record, level, false)),
            Output::F32(out) => self.rows(ids, out, 0.0, |record, level| f32::from_bits(self.single(record, level))),
        }
        Ok(())
    }
}

impl Backend for Fault {
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
        Ok::<_, ShapeMismatch>(Faulty(table, *self))
    }
}

#[test]
fn the_decoder_without_a_fault_is_exact() {
    assert_eq!(check_decoder("no fault", &Fault::None).verdict, Verdict::Exact);
}

#[test]
fn every_fault_is_noticed() {
    for fault in FAULTS {
        match first_failure(&fault) {
            Some(failure) => println!("{fault:?}: {failure}"),
            None => panic!("{fault:?} was not noticed"),
        }
    }
}

#[derive(Debug)]
struct Refused(ErrorKind);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused: {:?}", self.0)
    }
}

impl std::error::Error for Refused {}

impl BackendError for Refused {
    fn kind(&self) -> ErrorKind {
        self.0
    }
}

struct Refusing(ErrorKind);

impl Backend for Refusing {
    fn decoder<'t>(&'t self, table: Table<'t>) -> Result<impl Decoder, impl BackendError> {
        if table.shape().rows < u64::MAX { Err(Refused(self.0)) } else { Ok(Faulty(table, Fault::None)) }
    }
}

#[test]
fn only_a_missing_device_is_no_device() {
    for report in [
        check_decoder("x", &Refusing(ErrorKind::Unavailable)),
        check_with_device("x", Err::<Refusing, _>(Refused(ErrorKind::Unavailable))),
    ] {
        assert_eq!((report.cases, report.expected_cases), (0, DECODE_CASES));
        assert_eq!(report.verdict, Verdict::NoDevice("refused: Unavailable".into()));
    }
    for kind in [ErrorKind::OutOfMemory, ErrorKind::DeviceLost, ErrorKind::Other] {
        assert!(matches!(check_decoder("x", &Refusing(kind)).verdict, Verdict::Failed(_)));
        assert!(matches!(check_with_device("x", Err::<Refusing, _>(Refused(kind))).verdict, Verdict::Failed(_)));
    }
}
