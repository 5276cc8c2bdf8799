//! Table files that a reader must refuse: a sound one, and one defect each.

use condprog_convert::CompressOptions;
use condprog_core::Rate;
use condprog_table::SegmentPlan;
use serde_json::{Map, Value, json};
use twox_hash::XxHash3_64;

/// Where a defect shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Opening refuses the file.
    Open,
    /// It opens, and verifying reports the damage.
    Verify,
}

/// A file, and what a reader says to it.
pub(crate) struct Case {
    /// The defect, and the file's name.
    pub(crate) name: &'static str,
    /// Where it shows.
    pub(crate) stage: Stage,
    /// `Error::code` of the refusal, or `Fault::code` of the damage.
    pub(crate) code: &'static str,
    /// The file.
    pub(crate) bytes: Vec<u8>,
}

/// A table file taken apart.
#[derive(Clone)]
struct Parts {
    /// The header's tensors and metadata.
    header: Map<String, Value>,
    /// The list of tables in the metadata.
    tables: Value,
    data: Vec<u8>,
}

impl Parts {
    fn of(file: &[u8]) -> Parts {
        let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
        let header: Map<String, Value> = serde_json::from_slice(&file[8..8 + length]).expect("a sound header");
        let tables = header["__metadata__"]["condprog.tables"].as_str().expect("a list of tables");
        let tables = serde_json::from_str(tables).expect("a sound list of tables");
        // Each defect is told by itself, not by the checksum of the header that has it.
        let mut header = header;
        header["__metadata__"]["condprog.checksum"] = "xxh3-64".into();
        Parts { header, tables, data: file[8 + length..].into() }
    }

    fn metadata(&mut self) -> &mut Map<String, Value> {
        self.header["__metadata__"].as_object_mut().expect("a map")
    }

    fn bytes(mut self) -> Vec<u8> {
        let tables = self.tables.to_string();
        if let Some(text) = self.metadata().get_mut("condprog.tables").filter(|text| text.is_string()) {
            *text = tables.into();
        }
        let json = Value::Object(self.header).to_string();
        whole(&json, &self.data)
    }

    /// The bytes of a tensor.
    fn tensor(&mut self, name: &str) -> &mut [u8] {
        let offset = |index: usize| self.header[name]["data_offsets"][index].as_u64().expect("an offset") as usize;
        let (start, end) = (offset(0), offset(1));
        &mut self.data[start..end]
    }

    /// Makes the checksums of segment 0 of table 0 those of its records.
    fn mend_checksums(&mut self) {
        let segment = self.tables[0]["segments"][0].clone();
        let text = |value: &Value| value.as_str().expect("a name").to_string();
        let (records, checksums) = (text(&segment["tensor"]), text(&segment["checksums"]["tensor"]));
        let number = |value: &Value| value.as_u64().expect("a number") as usize;
        let block = number(&segment["checksums"]["block_rows"]) * number(&segment["record_bytes"]);
        let sums: Vec<u8> =
            self.tensor(&records).chunks(block).flat_map(|block| XxHash3_64::oneshot(block).to_le_bytes()).collect();
        self.tensor(&checksums).copy_from_slice(&sums);
        self.tables[0]["segments"][0]["checksums"]["xxh3_64"] = format!("{:016x}", XxHash3_64::oneshot(&sums)).into();
    }
}

fn whole(json: &str, data: &[u8]) -> Vec<u8> {
    let mut json = json.as_bytes().to_vec();
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes(), json.as_slice(), data].concat()
}

/// The source of the sound file: a table `t` of 20 rows of 36 values.
pub(crate) fn input() -> Vec<u8> {
    let value = |i: u32| {
        let mixed = XxHash3_64::oneshot(&i.to_le_bytes()) >> 40;
        mixed as f32 / (1 << 23) as f32 - 1.0
    };
    let data: Vec<u8> = (0..20 * 36).flat_map(|i| value(i).to_le_bytes()).collect();
    let json = json!({ "t": { "dtype": "F32", "shape": [20, 36], "data_offsets": [0, data.len()] } });
    whole(&json.to_string(), &data)
}

/// The options that make the sound file of it: two segments, blocks of five rows.
pub(crate) fn options() -> CompressOptions {
    let rate = |quarters| Rate::from_quarters(quarters).expect("a rate of the format");
    let plan = vec![SegmentPlan { rows: 12, rate: rate(6) }, SegmentPlan { rows: 8, rate: rate(8) }];
    CompressOptions {
        segments: [("t".into(), plan)].into(),
        effort: 0,
        block_rows: Some(5),
        force: true,
        ..CompressOptions::default()
    }
}

/// All cases, from a sound file with one table of two segments, `t#0` with padding bits in its records and `t#1`, each
/// of more than one checksum block, and no zero row.
pub(crate) fn cases(sound: &[u8]) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, stage, code, bytes| cases.push(Case { name, stage, code, bytes });
    let open = |edit: &dyn Fn(&mut Parts)| {
        let mut parts = Parts::of(sound);
        edit(&mut parts);
        parts.bytes()
    };

    // The container.
    let header_end = 8 + u64::from_le_bytes(sound[..8].try_into().expect("eight bytes")) as usize;
    case("empty", Stage::Open, "header-short", Vec::new());
    case("truncated-in-header", Stage::Open, "header-cut", sound[..header_end - 1].into());
    case("truncated-in-records", Stage::Open, "header-truncated", sound[..sound.len() - 1].into());
    case("bytes-after-the-end", Stage::Open, "header-trailing", [sound, &[0]].concat());
    case("header-length-huge", Stage::Open, "header-too-large", [&[0xff; 8], &sound[8..]].concat());
    case("header-not-json", Stage::Open, "header-json", whole("not a header", &sound[header_end..]));
    let json = std::str::from_utf8(&sound[8..header_end]).expect("a sound header").trim_end();
    let twice = json.replacen("\"t#1\":", "\"t#0\":", 1);
    case("tensor-twice", Stage::Open, "header-duplicate", whole(&twice, &sound[header_end..]));
    let other = json.replacen("\\\"effort\\\":0", "\\\"effort\\\":1", 1);
    case("header-checksum-wrong", Stage::Open, "format-header-checksum", whole(&other, &sound[header_end..]));
    let shift = |by: i64| {
        open(&|parts| {
            for index in 0..2 {
                let offset = &mut parts.header["t#1"]["data_offsets"][index];
                *offset = (offset.as_i64().expect("an offset") + by).into();
            }
        })
    };
    case("tensors-overlap", Stage::Open, "header-overlap", shift(-1));
    case("tensors-with-gap", Stage::Open, "header-gap", shift(1));

    // What the file says it is.
    let metadata = |key: &'static str, value: Option<&'static str>| {
        open(&|parts| {
            match value {
                Some(value) => parts.metadata().insert(key.into(), value.into()),
                None => parts.metadata().remove(key),
            };
        })
    };
    case("magic-absent", Stage::Open, "format-magic", metadata("condprog.format", None));
    case("magic-wrong", Stage::Open, "format-magic", metadata("condprog.format", Some("condprog-tables")));
    case("version-absent", Stage::Open, "format-version", metadata("condprog.format_version", None));
    case("version-unknown", Stage::Open, "format-version", metadata("condprog.format_version", Some("2")));
    case("run-malformed", Stage::Open, "format-run", metadata("condprog.run", Some("0123456789ABCDEF")));
    case("checksum-unknown", Stage::Open, "format-checksum", metadata("condprog.checksum", Some("crc32c")));
    case("tables-absent", Stage::Open, "format-no-table-list", metadata("condprog.tables", None));

    // The list of tables.
    let table = |edit: &dyn Fn(&mut Value)| open(&|parts| edit(&mut parts.tables[0]));
    let segment =
        |index: usize, key: &'static str, value: Value| table(&|table| table["segments"][index][key] = value.clone());
    case("tables-malformed", Stage::Open, "format-table-list", table(&|table| table["rows"] = "20".into()));
    case("tables-none", Stage::Open, "format-no-tables", open(&|parts| parts.tables = json!([])));
    case(
        "table-twice",
        Stage::Open,
        "format-duplicate-table",
        open(&|parts| parts.tables = json!([parts.tables[0], parts.tables[0]])),
    );
    case("program-unknown", Stage::Open, "format-program", table(&|table| table["program"] = "gaussian256".into()));
    case("rate-too-low", Stage::Open, "format-rate", segment(0, "rate_quarters", 3.into()));
    case("rate-too-high", Stage::Open, "format-rate", segment(0, "rate_quarters", 17.into()));
    case("width-not-allowed", Stage::Open, "format-width", table(&|table| table["dim"] = 35.into()));
    case("record-size-wrong", Stage::Open, "format-record-bytes", segment(0, "record_bytes", 8.into()));
    case("segments-overlap", Stage::Open, "format-segment-overlap", segment(1, "first_row", 11.into()));
    case("segments-with-gap", Stage::Open, "format-segment-gap", segment(1, "first_row", 13.into()));
    case("segment-empty", Stage::Open, "format-segment-rows", segment(1, "rows", 0.into()));
    case("segments-too-short", Stage::Open, "format-segment-rows", segment(1, "rows", 7.into()));
    case("segment-row-overflow", Stage::Open, "format-segment-rows", segment(1, "rows", u64::MAX.into()));
    case("row-count-overflow", Stage::Open, "format-row-range", table(&|table| table["first_row"] = u64::MAX.into()));
    case(
        "row-count-above-ids",
        Stage::Open,
        "format-row-range",
        table(&|table| table["table_rows"] = (1u64 << 63).into()),
    );
    case("row-range-beyond-table", Stage::Open, "format-row-range", table(&|table| table["first_row"] = 1.into()));
    case("counts-too-large", Stage::Open, "format-counts", table(&|table| table["zero_rows"] = 21.into()));
    case(
        "segment-counts-wrong",
        Stage::Open,
        "format-segment-counts",
        table(&|table| table["segments"][1]["zeroed"]["underflow"] = 1.into()),
    );
    case(
        "source-tensors-too-short",
        Stage::Open,
        "format-source-parts",
        table(&|table| table["source"]["parts"] = json!([{ "name": "a", "rows": 12 }, { "name": "b", "rows": 7 }])),
    );
    case(
        "source-shape-wrong",
        Stage::Open,
        "format-source-shape",
        table(&|table| table["source"]["shape"] = json!([20, 32])),
    );
    let checksums = |key: &'static str, value: Value| table(&|t| t["segments"][0]["checksums"][key] = value.clone());
    case("checksum-blocks-of-no-rows", Stage::Open, "format-block-rows", checksums("block_rows", 0.into()));
    case("checksum-count-wrong", Stage::Open, "format-tensor", checksums("block_rows", 12.into()));
    case("tensor-absent", Stage::Open, "format-missing-tensor", segment(1, "tensor", "t#2".into()));
    case("tensor-shared", Stage::Open, "format-shared-tensor", {
        let same = |table: &mut Value| table["segments"][1] = table["segments"][0].clone();
        // Both halves of a table of twice the rows of `t#0`, from the one tensor.
        table(&|table| {
            same(table);
            table["segments"][1]["first_row"] = 12.into();
            for key in ["rows", "table_rows"] {
                table[key] = 24.into();
            }
            table["source"]["shape"][0] = 24.into();
        })
    });
    case("record-tensor-of-no-table", Stage::Open, "format-stray-tensor", {
        table(&|table| {
            table["segments"].as_array_mut().expect("a list").truncate(1);
            for key in ["rows", "table_rows"] {
                table[key] = 12.into();
            }
            table["source"]["shape"][0] = 12.into();
        })
    });

    // Damage.
    let damage = |tensor: &'static str| open(&|parts| parts.tensor(tensor)[0] ^= 1);
    case("checksums-damaged", Stage::Open, "format-checksums", damage("t#0#checksums"));
    case("records-damaged", Stage::Verify, "damage-checksum", damage("t#0"));
    case("padding-bits-set", Stage::Verify, "damage-padding", {
        open(&|parts| {
            parts.tensor("t#0")[6] |= 1; // 36 values at 1.5 bits leave two bits of the seventh byte
            parts.mend_checksums();
        })
    });
    case(
        "zero-row-not-counted",
        Stage::Verify,
        "damage-zero-rows",
        open(&|parts| {
            parts.tensor("t#0")[..9].fill(0);
            parts.mend_checksums();
        }),
    );
    cases
}
