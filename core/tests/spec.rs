//! SPEC.md agrees with the code, and a decoder written from the text alone agrees with the reference decoder.

use condprog_core::hazmat::Metric;
use condprog_core::program::VARIANTS;
use condprog_core::trellis::{MAX_DIM, STATE_BITS};
use condprog_core::{FORMAT_VERSION, Layout, LayoutError, Program, Rate, Scale, reference};

const SPEC: &str = include_str!("../SPEC.md");

/// The text from a heading to the next one of the same or a higher level.
fn section(heading: &str) -> &'static str {
    let start = SPEC.find(&format!("\n{heading}")).unwrap_or_else(|| panic!("no heading \"{heading}\"")) + 1;
    let level = heading.chars().take_while(|&c| c == '#').count();
    let body = &SPEC[start..];
    let end = (1..=level).filter_map(|l| body[1..].find(&format!("\n{} ", "#".repeat(l)))).min();
    &body[..end.map_or(body.len(), |end| end + 1)]
}

/// The lines of the fenced blocks of a section.
fn blocks(section: &str) -> Vec<Vec<&str>> {
    let fenced = section.split("```").skip(1).step_by(2);
    fenced.map(|block| block.trim_matches('\n').lines().collect()).collect()
}

/// The cells of the last table of a section, without its head and without code marks.
fn table(section: &str) -> Vec<Vec<String>> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

fn text_levels() -> Vec<i64> {
    let lines = blocks(section("### 3.1"))[0].join("");
    lines.split(',').filter(|cell| !cell.trim().is_empty()).map(|cell| cell.trim().parse().unwrap()).collect()
}

/// Everything that section 11 shows of one column.
#[derive(Debug, PartialEq)]
struct Column {
    start: u64,
    state: u64,
    hash: u64,
    index: u64,
    value: i64,
    p: u64,
    f32: u64,
    bf16: u64,
    f16: u64,
}

/// A decoder from the text: sections 3 to 7, in the text's words.
fn decode(level: &[i64], d: u64, q: u64, record: &[u8]) -> Vec<Column> {
    let n = d * q / 4;
    let code_bytes = n.div_ceil(8) as usize;
    let code_bit = |k: u64| u64::from(record[(k / 8) as usize] >> (7 - k % 8)) & 1;
    let field = u64::from(record[code_bytes]) | u64::from(record[code_bytes + 1]) << 8;
    let (v, x, m) = (field >> 12, field >> 6 & 63, field & 63);
    let column = |t: u64| {
        let start = t * q / 4;
        let state = (0..16).fold(0, |s, i| s * 2 + code_bit((start + i) % n));
        let hash = (state * (2 * state + 1) + v * 4096) % 65536;
        let index = (hash >> 8) & 127;
        let value = if hash >= 32768 { -level[index as usize] } else { level[index as usize] };
        let p = (64 + m) * value.unsigned_abs();
        if x == 0 && m == 0 {
            return Column { start, state, hash, index, value, p, f32: 0, bf16: 0, f16: 0 };
        }
        let sign = u64::from(value < 0);
        let top = u64::from(63 - p.leading_zeros());
        let e = x as i64 - 54 + top as i64;
        let f32 = sign << 31 | ((e + 127) as u64) << 23 | (p << (23 - top)) & 0x7f_ffff;
        let bf16 = (f32 + 0x7fff + ((f32 >> 16) & 1)) >> 16;
        let f16 = if e > 15 {
            sign << 15 | 0x7c00
        } else if e < -25 {
            sign << 15
        } else {
            let significand = p << (23 - top);
            let (drop, base) = if e >= -14 { (13, (e + 14) as u64) } else { ((-1 - e) as u64, 0) };
            let mut kept = significand >> drop;
            let (rest, half) = (significand % (1 << drop), 1 << (drop - 1));
            if rest > half || rest == half && kept % 2 == 1 {
                kept += 1;
            }
            sign << 15 | ((base << 10) + kept)
        };
        Column { start, state, hash, index, value, p, f32, bf16, f16 }
    };
    (0..d).map(column).collect()
}

#[test]
fn versions_agree() {
    let versions = table(section("## 1. "));
    assert_eq!(versions[1][1], FORMAT_VERSION.to_string());
    assert_eq!(versions[2][1], env!("CARGO_PKG_VERSION"));
    let (revision, _) = versions[0][1].split_once(' ').expect("a document revision and its date");
    let history = table(section("## 13. "));
    assert_eq!(history.last().unwrap()[0], revision);
    assert_eq!(history.last().unwrap()[1], FORMAT_VERSION.to_string());
}

#[test]
fn levels_agree() {
    assert_eq!(text_levels(), Program::V1.levels().map(i64::from));
}

#[test]
fn formulas_stand_in_the_text_as_tested_here() {
    // The decoder above follows these lines; who changes one has to change the other.
    for line in [
        "h(s, v) = (s * (2 * s + 1) + v * 4096) mod 65536",
        "index = (h >> 8) & 127          bits 14 to 8 of h",
        "value = -LEVEL[index]  if h >= 32768  (bit 15 is set)",
        "        s = s * 2 + code_bit((t * q / 4 + i) mod N)",
        "p       = (64 + m) * |value|                64 to 16129",
        "E       = x - 54 + top                      -48 to 22: |α · value| is 2^E or more and below 2^(E + 1)",
        "f32 = sign << 31 | (E + 127) << 23 | (p << (23 - top)) & 0x7fffff",
        "bf16 = (f32 + 0x7fff + ((f32 >> 16) & 1)) >> 16",
        "if E > 15:   f16 = sign << 15 | 0x7c00",
        "if E < -25:  f16 = sign << 15",
        "    if E >= -14:  drop = 13;        base = E + 14",
        "    else:         drop = -1 - E;    base = 0",
        "    if rest > half, or rest = half and kept is odd:  kept = kept + 1",
        "    f16 = sign << 15 | (base << 10) + kept",
    ] {
        assert!(SPEC.lines().any(|l| l == line), "no line \"{line}\"");
    }
}

#[test]
fn limits_agree() {
    let limits = table(section("## 9. "));
    let row = |what: &str| {
        let row = limits.iter().find(|row| row[0].starts_with(what)).unwrap_or_else(|| panic!("no limit of {what}"));
        (row[1].as_str(), row[2].as_str())
    };
    let narrowest = (1..).find(|&dim| Layout::new(dim, Rate::MAX).is_ok()).unwrap();
    let smallest = Layout::new(narrowest, Rate::MAX).unwrap();
    let largest = Layout::new(MAX_DIM, Rate::MAX).unwrap();
    assert_eq!(Layout::new(MAX_DIM + 1, Rate::MAX), Err(LayoutError::Dim { dim: MAX_DIM + 1 }));
    assert_eq!(row("width d"), (&*format!("{narrowest} (at 4 bits)"), &*MAX_DIM.to_string()));
    let quarters = (Rate::MIN.quarters().to_string(), Rate::MAX.quarters().to_string());
    assert_eq!(row("rate in quarter bits"), (&*quarters.0, &*quarters.1));
    assert_eq!(row("code bits"), (&*STATE_BITS.to_string(), &*largest.code_bits().to_string()));
    assert_eq!(row("record bytes"), (&*smallest.record_bytes().to_string(), &*largest.record_bytes().to_string()));
    assert_eq!(row("variant"), ("0", &*(VARIANTS - 1).to_string()));
    assert_eq!(row("scale"), ("65 * 2^-54", &*Scale::MAX.alpha().to_string()));
    assert_eq!(Scale::MIN.alpha(), 65.0 / (1u64 << 54) as f64);
    assert_eq!(row("magnitude").1, format!("65024 * 127 = {}", Scale::MAX.alpha() * 127.0));
    assert_eq!(row("rows of a table"), ("0", "2^63 - 1"));
}

#[test]
fn the_worked_example_follows_from_the_text() {
    let example = section("## 11. ");
    let record: Vec<u8> = blocks(example)[0][0].split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let (d, q) = (12, 6);
    assert!(example.contains("`d = 12`, `q = 6`"));
    let columns = decode(&text_levels(), d, q, &record);
    let rows = table(example);
    assert_eq!(rows.len() as u64, d);
    for ((t, row), column) in (0..).zip(&rows).zip(&columns) {
        let hex = |cell: usize| u64::from_str_radix(&row[cell], 16).unwrap();
        let stated = Column {
            start: row[1].parse().unwrap(),
            state: hex(3),
            hash: hex(4),
            index: row[6].parse().unwrap(),
            value: row[7].parse().unwrap(),
            p: row[8].parse().unwrap(),
            f32: hex(9),
            bf16: hex(10),
            f16: hex(11),
        };
        assert_eq!((row[0].parse(), &stated), (Ok::<u64, _>(t), column));
        assert_eq!(u64::from_str_radix(&row[2], 2), Ok(column.state));
        assert_eq!(row[5], if column.value < 0 { "-" } else { "+" });
    }
    let bits: String = record[..3].iter().map(|byte| format!("{byte:08b}")).collect();
    assert_eq!(blocks(example)[1][0].replace([' ', '|'], ""), bits);
    assert!(example.contains("`v = 5`, `x = 30`, `m = 37`, so `α = 101 * 2^-24`"));
    let scale = Scale::from_bits(u16::from_le_bytes([record[3], record[4]]));
    assert_eq!((scale.variant(), scale.exponent(), scale.significand()), (5, 30, 101));
    assert!(example.contains(&format!("{:#06x}", scale.to_bits())));
    let first = columns[0].state;
    let product = first * (2 * first + 1);
    assert!(example.contains(&format!(
        "`{first:#06x} * (2 * {first:#06x} + 1) + 5 * 4096 = {product:#x} + 0x5000`, of which the low 16 bits are `{:#06x}`",
        columns[0].hash
    )));
    compare(&columns, Layout::new(12, Rate::from_quarters(6).unwrap()).unwrap(), &record);
}

/// The text's columns and the reference decoder's rows.
fn compare(columns: &[Column], layout: Layout, record: &[u8]) {
    let d = layout.dim() as usize;
    let (mut f32, mut bf16, mut f16) = (vec![0.0; d], vec![0; d], vec![0; d]);
    reference::decode_f32(layout, record, &mut f32);
    reference::decode_bf16(layout, record, &mut bf16);
    reference::decode_f16(layout, record, &mut f16);
    for (t, column) in columns.iter().enumerate() {
        let got = (f32[t].to_bits().into(), bf16[t].into(), f16[t].into());
        assert_eq!(got, (column.f32, column.bf16, column.f16), "column {t} of {record:02x?}");
    }
}

#[test]
fn a_decoder_from_the_text_agrees_with_the_reference() {
    let levels = text_levels();
    let mut seed = 1u64;
    let mut byte = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 56) as u8
    };
    let mut records = 0;
    for rate in Rate::all() {
        for layout in (1..=80).chain([160, 256, 1000]).filter_map(|dim| Layout::new(dim, rate).ok()) {
            for _ in 0..8 {
                let record: Vec<u8> = (0..layout.record_bytes()).map(|_| byte()).collect();
                let columns = decode(&levels, layout.dim().into(), rate.quarters().into(), &record);
                compare(&columns, layout, &record);
                records += 1;
            }
        }
    }
    assert!(records > 4000, "{records} records");
    // And every scale, every zero row included.
    let layout = Layout::new(16, Rate::TWO).unwrap();
    for field in 0..=u16::MAX {
        let [low, high] = field.to_le_bytes();
        let record = [byte(), byte(), byte(), byte(), low, high];
        compare(&decode(&levels, 16, 8, &record), layout, &record);
    }
}

#[test]
fn annex_a_has_the_metrics_limits() {
    let metric = section("### A.2");
    assert!(metric.contains(&format!("`-{0} .. {0}` (`Metric::TARGET_LIMIT`)", Metric::TARGET_LIMIT)));
}
