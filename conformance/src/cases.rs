//! The cases of the decoder suite: tables, what is asked of them, and what has to come out.

use std::sync::OnceLock;

use condprog_core::{BatchError, Dtype, Layout, Missing, Rate, Segment, Table, TableShape};

use crate::bits::{reference_bits, sha256};
use crate::input::{Stream, random_records};
use crate::vectors;
use crate::vectors::decode::{self, DecodeVectors, Digests};

/// Seed of the random cases unless `CONDPROG_SEED` says otherwise.
pub(crate) const SEED: u32 = 20_261_129;

/// The rows of one segment in memory, at an address of the case's choosing.
pub(crate) struct Part {
    layout: Layout,
    rows: u64,
    memory: Vec<u8>,
    lead: usize,
}

impl Part {
    fn new(layout: Layout, records: &[u8], lead: usize) -> Part {
        let rows = (records.len() / layout.record_bytes()) as u64;
        let mut memory = vec![0xff; lead];
        memory.extend_from_slice(records);
        Part { layout, rows, memory, lead }
    }

    fn random(layout: Layout, rows: u32, seed: u32) -> Part {
        Part::new(layout, &random_records(layout, rows, seed), 0)
    }

    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { rows: self.rows, layout: self.layout, records: &self.memory[self.lead..] }
    }
}

/// What a request has to give.
pub(crate) enum Expect {
    /// The bits of a golden vector, in the order of [`Dtype::ALL`].
    Golden([Vec<u32>; 3]),
    /// What the reference decoder gives, with the digests of a golden vector.
    Digest(Digests),
    /// What the reference decoder gives.
    Reference,
    /// A refusal of an output that is `longer` values longer than it should be; it stays untouched.
    Refusal { longer: isize, error: BatchError },
    /// A refusal by the backend, as the request was checked against this shape.
    Mismatch(TableShape),
}

/// One request, made once for each number format: three cases.
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) ids: Vec<i64>,
    pub(crate) missing: Missing,
    pub(crate) expect: Expect,
    reference: OnceLock<Result<[Vec<u32>; 3], String>>,
}

impl Request {
    fn new(name: impl Into<String>, ids: Vec<i64>) -> Request {
        let (missing, expect) = (Missing::Zero, Expect::Reference);
        Request { name: name.into(), ids, missing, expect, reference: OnceLock::new() }
    }

    /// The bits that have to come out; what the reference decoder says is asked once for all backends.
    ///
    /// # Errors
    /// When the reference decoder's own rows do not have the digests of a golden vector.
    pub(crate) fn expected(&self, table: Table<'_>, dtype: Dtype) -> Result<&[u32], String> {
        let index = Dtype::ALL.iter().position(|&d| d == dtype).unwrap_or(0);
        if let Expect::Golden(bits) = &self.expect {
            return Ok(&bits[index]);
        }
        let reference = self.reference.get_or_init(|| {
            let bits = Dtype::ALL.map(|dtype| reference_bits(table, &self.ids, dtype));
            if let Expect::Digest(digests) = &self.expect {
                for (bits, dtype) in bits.iter().zip(Dtype::ALL) {
                    let (got, golden) = (sha256(bits, dtype), digests.of(dtype));
                    if got != golden {
                        return Err(format!("the reference's {dtype} rows have SHA-256 {got}, expected {golden}"));
                    }
                }
            }
            Ok(bits)
        });
        reference.as_ref().map(|bits| &*bits[index]).map_err(String::clone)
    }
}

/// A table and the requests made to one decoder of it.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Whether the decoder lives beside that of the case before, and the two are asked in turn.
    pub(crate) beside_previous: bool,
    pub(crate) parts: Vec<Part>,
    pub(crate) requests: Vec<Request>,
}

impl Case {
    fn new(name: impl Into<String>, parts: Vec<Part>, requests: Vec<Request>) -> Case {
        Case { name: name.into(), beside_previous: false, parts, requests }
    }

    fn shape(&self) -> TableShape {
        TableShape { rows: self.parts.iter().map(|part| part.rows).sum(), dim: self.parts[0].layout.dim() }
    }
}

/// Seed of the random cases.
///
/// # Errors
/// When `CONDPROG_SEED` is set to something that is no 32-bit number.
pub(crate) fn seed() -> Result<u32, String> {
    match std::env::var("CONDPROG_SEED") {
        Ok(text) => text.parse().map_err(|_| format!("CONDPROG_SEED is \"{text}\", expected a number below 2^32")),
        Err(_) => Ok(SEED),
    }
}

/// The seed and every case; made once.
pub(crate) fn all() -> &'static Result<(u32, Vec<Case>), String> {
    static CASES: OnceLock<Result<(u32, Vec<Case>), String>> = OnceLock::new();
    CASES.get_or_init(|| {
        let seed = seed()?;
        let (vectors, mut stream) = (decode::load()?, Stream::new(seed));
        let mut cases = golden_records(&vectors)?;
        cases.extend(requests(&mut stream));
        cases.extend(no_rows());
        cases.extend(segments(&mut stream));
        cases.extend(addresses(&mut stream));
        cases.extend(random(&mut stream));
        cases.extend(neighbours(&mut stream));
        cases.extend(golden_tables(&vectors)?);
        Ok((seed, cases))
    })
}

fn known(dim: u32, quarters: u32) -> Layout {
    vectors::layout(dim, quarters).expect("the suite asks only for layouts there are")
}

/// The golden records: one decoder for each run of them with one layout.
fn golden_records(vectors: &DecodeVectors) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for run in vectors.records.chunk_by(|a, b| (a.dim, a.rate) == (b.dim, b.rate)) {
        let layout = vectors::layout(run[0].dim, run[0].rate)?;
        let (mut records, mut requests) = (Vec::new(), Vec::new());
        for (row, vector) in (0..).zip(run) {
            let bytes = vector.bytes()?;
            if bytes.len() != layout.record_bytes() {
                return Err(format!(
                    "{}: record is {} bytes, expected {}",
                    vector.name,
                    bytes.len(),
                    layout.record_bytes()
                ));
            }
            records.extend(bytes);
            let [bf16, f16, f32] = Dtype::ALL.map(|dtype| vector.bits(dtype));
            let expect = Expect::Golden([bf16?, f16?, f32?]);
            requests.push(Request { expect, ..Request::new(vector.name.as_str(), vec![row]) });
        }
        let name = format!("golden records, {} bits, width {}", layout.rate(), layout.dim());
        cases.push(Case::new(name, vec![Part::new(layout, &records, 0)], requests));
    }
    Ok(cases)
}

/// The golden tables.
fn golden_tables(vectors: &DecodeVectors) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut table = |name: String, layout: Layout, records: &[u8], sha256: &Digests| {
        let part = Part::new(layout, records, 0);
        let ids = (0..part.rows as i64).collect();
        let request = Request { expect: Expect::Digest(sha256.clone()), ..Request::new("all rows", ids) };
        cases.push(Case::new(name, vec![part], vec![request]));
    };
    for vector in &vectors.digests {
        let layout = vectors::layout(vector.dim, vector.rate)?;
        let name = format!("golden table, {} bits, width {}", layout.rate(), layout.dim());
        table(name, layout, &random_records(layout, vector.rows, vector.seed), &vector.sha256);
    }
    for vector in &vectors.scales {
        let layout = vectors::layout(vector.dim, vector.rate)?;
        table("golden table, every scale with every level".into(), layout, &vector.records()?, &vector.sha256);
    }
    Ok(cases)
}

/// Random ids, about one in eight of which names no row.
fn some_ids(stream: &mut Stream, count: usize, rows: u64) -> Vec<i64> {
    let mut id = || match stream.below(8) {
        0 => [-1, rows as i64, i64::MAX, i64::MIN][stream.below(4) as usize],
        _ => i64::from(stream.below(rows as u32)),
    };
    (0..count).map(|_| id()).collect()
}

/// Requests of every kind and many sizes, to tables of one segment.
fn requests(stream: &mut Stream) -> Vec<Case> {
    const ROWS: u32 = 300;
    let rows = i64::from(ROWS);
    let mut cases = Vec::new();
    for (dim, quarters, large) in [(256, 8, 5000), (160, 8, 3000), (36, 5, 70_000), (8, 8, 200_000)] {
        let layout = known(dim, quarters);
        let mut requests = vec![
            Request::new("no ids", vec![]),
            Request::new("all rows", (0..rows).collect()),
            Request::new("all rows backwards", (0..rows).rev().collect()),
            Request::new("the first row", vec![0]),
            Request::new("the last row", vec![rows - 1]),
            Request::new("one row many times", vec![7; 100]),
            Request::new("two rows in turn", [rows - 1, 0].repeat(50)),
            Request::new("id -1", vec![-1]),
            Request::new("only ids of no row", vec![-1, rows, i64::MAX, i64::MIN, -1, rows + 1]),
            Request::new("ids of no row among others", vec![0, -1, 1, rows, rows - 1, i64::MIN, 2, i64::MAX, 0]),
            // What is left of these in 32 bits would name a row.
            Request::new("ids of no row beyond 32 bits", vec![1 << 32, (1 << 32) + 5, 5 - (1 << 32), 5 | 1 << 62, 5]),
            Request::new("ids around powers of two", (0..63).flat_map(|k| [(1 << k) - 1, 1 << k, -(1 << k)]).collect()),
        ];
        for count in [2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000, large] {
            requests.push(Request::new(format!("{count} ids"), some_ids(stream, count, ROWS.into())));
        }
        let mut refuse_ids = |name: &str, ids: Vec<i64>, position: usize| {
            let error = BatchError::MissingRow { position, id: ids[position], rows: ROWS.into() };
            let (missing, expect) = (Missing::Error, Expect::Refusal { longer: 0, error });
            requests.push(Request { missing, expect, ..Request::new(name, ids) });
        };
        refuse_ids("id -1, to be refused", vec![0, 1, 2, -1, 4, -1], 3);
        refuse_ids("row count as an id, to be refused", vec![rows], 0);
        refuse_ids("smallest id, to be refused", vec![rows - 1, i64::MIN], 1);
        refuse_ids("largest id, to be refused", vec![i64::MAX, 0], 0);
        refuse_ids("2^32, to be refused", vec![0, 1 << 32, 0], 1);
        for (name, ids) in [("rows that are there", vec![0, rows - 1, 0]), ("no ids at all", vec![])] {
            requests.push(Request { missing: Missing::Error, ..Request::new(name, ids) });
        }
        let mut refuse_length = |name: &str, count: usize, longer: isize| {
            let expected = count as u128 * u128::from(dim);
            let got = (expected as usize).saturating_add_signed(longer);
            let expect = Expect::Refusal { longer, error: BatchError::OutputLength { got, expected } };
            requests.push(Request { expect, ..Request::new(name, (0..count as i64).collect()) });
        };
        refuse_length("output short by one value", 3, -1);
        refuse_length("output long by one value", 3, 1);
        refuse_length("output short by one row", 3, -(dim as isize));
        refuse_length("output of nothing", 1, -(dim as isize));
        refuse_length("output for no ids", 0, dim as isize);
        for (name, rows, dim) in [
            ("a request to a table of fewer rows", u64::from(ROWS) - 1, dim),
            ("a request to a table of more rows", u64::from(ROWS) + 1, dim),
            ("a request to a wider table", u64::from(ROWS), dim + 4),
            ("a request to a narrower table", u64::from(ROWS), dim - 4),
            ("a request to the largest table", i64::MAX as u64, dim),
            ("a request to a table of no rows", 0, dim),
        ] {
            let expect = Expect::Mismatch(TableShape { rows, dim });
            requests.push(Request { expect, ..Request::new(name, vec![0, 5, -1]) });
        }
        // After all the refusals the decoder must still work.
        requests.push(Request::new("all rows again", (0..rows).collect()));
        let name = format!("requests, {} bits, width {dim}", layout.rate());
        cases.push(Case::new(name, vec![Part::random(layout, ROWS, stream.next_u32())], requests));
    }
    cases
}

/// Tables without rows.
fn no_rows() -> Vec<Case> {
    [1usize, 3]
        .into_iter()
        .map(|segments| {
            let parts = (0..segments).map(|_| Part::new(known(32, 8), &[], 0)).collect();
            let requests = vec![
                Request::new("no ids", vec![]),
                Request::new("ids of no row", vec![0, -1, 1, i64::MAX, i64::MIN]),
                Request {
                    missing: Missing::Error,
                    expect: Expect::Refusal {
                        longer: 0,
                        error: BatchError::MissingRow { position: 0, id: 0, rows: 0 },
                    },
                    ..Request::new("id 0, to be refused", vec![0])
                },
            ];
            Case::new(format!("table of no rows in {segments} segments"), parts, requests)
        })
        .collect()
}

/// Tables of several segments, rates and row counts mixed.
fn segments(stream: &mut Stream) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, stream: &mut Stream, dim: u32, parts: &[(u32, u32)]| {
        let parts =
            parts.iter().map(|&(quarters, rows)| Part::random(known(dim, quarters), rows, stream.next_u32())).collect();
        let mut case = Case::new(format!("segments, width {dim}, {name}"), parts, vec![]);
        let rows = case.shape().rows;
        let mut seams = vec![];
        let mut end = 0;
        for part in &case.parts {
            end += part.rows as i64;
            seams.extend([end, end - 1]);
        }
        case.requests = vec![
            Request::new("all rows", (0..rows as i64).collect()),
            Request::new("all rows backwards", (0..rows as i64).rev().collect()),
            Request::new("rows on both sides of each seam", seams),
            Request::new("300 ids", some_ids(stream, 300, rows)),
        ];
        cases.push(case);
    };
    let every_rate: Vec<_> = (4..=16).map(|quarters| (quarters, 3 + quarters * 5 % 17)).collect();
    add("every rate", stream, 64, &every_rate);
    add("every rate", stream, 100, &every_rate);
    add("one row each", stream, 96, &(0..40).map(|i| (4 + i % 13, 1)).collect::<Vec<_>>());
    add("the same rate", stream, 256, &[(8, 33), (8, 1), (8, 64)]);
    add("empty ones first, between and last", stream, 160, &[(8, 0), (6, 20), (12, 0), (8, 0), (16, 9), (4, 0)]);
    add("2-grams finer than 4-grams", stream, 256, &[(12, 50), (6, 200)]);
    cases
}

/// Records at every kind of odd address.
fn addresses(stream: &mut Stream) -> Vec<Case> {
    let mut cases = Vec::new();
    for (dim, quarters) in [(256, 8), (160, 8), (100, 7)] {
        for lead in [1, 2, 3, 4, 5, 7, 8, 13, 31, 33, 63] {
            let layout = known(dim, quarters);
            let part = Part::new(layout, &random_records(layout, 40, stream.next_u32()), lead);
            let requests = vec![Request::new("all rows backwards", (0..40).rev().collect())];
            let name = format!("records {lead} bytes into an allocation, {} bits, width {dim}", layout.rate());
            cases.push(Case::new(name, vec![part], requests));
        }
    }
    cases
}

/// Random layouts, tables and requests.
fn random(stream: &mut Stream) -> Vec<Case> {
    (0..64)
        .map(|index| {
            let layout = loop {
                let (dim, quarters) = (4 + stream.below(if index % 8 == 0 { 3000 } else { 400 }), 4 + stream.below(13));
                if let Ok(layout) = Rate::from_quarters(quarters).and_then(|rate| Layout::new(dim, rate)) {
                    break layout;
                }
            };
            let (rows, seed, lead) = (1 + stream.below(50), stream.next_u32(), stream.below(9) as usize);
            let count = stream.below(100) as usize;
            let requests = vec![
                Request::new("all rows", (0..i64::from(rows)).collect()),
                Request::new(format!("{count} ids"), some_ids(stream, count, rows.into())),
            ];
            let name = format!("random, {} bits, width {}, {rows} rows of seed {seed}", layout.rate(), layout.dim());
            Case::new(name, vec![Part::new(layout, &random_records(layout, rows, seed), lead)], requests)
        })
        .collect()
}

/// Several decoders at a time, asked in turn: none may answer for another.
fn neighbours(stream: &mut Stream) -> Vec<Case> {
    let mut cases = Vec::new();
    for layouts in [[(64, 8, 30), (64, 8, 31), (64, 8, 30)], [(256, 8, 40), (36, 5, 70), (160, 12, 3)]] {
        for (index, (dim, quarters, rows)) in layouts.into_iter().enumerate() {
            let layout = known(dim, quarters);
            let counts = [0usize, 1, 5, 40, 3, 100];
            let requests =
                counts.map(|count| Request::new(format!("{count} ids"), some_ids(stream, count, rows.into())));
            let part = Part::random(layout, rows, stream.next_u32());
            let name = format!("decoder {index} of three, {} bits, width {dim}", layout.rate());
            let case = Case::new(name, vec![part], requests.into());
            cases.push(Case { beside_previous: index > 0, ..case });
        }
    }
    cases
}
