//! The page: one HTML file with everything in it.

use std::fmt::Write;

use super::plot::Plot;
use super::{ComparisonLine, KlLine, Report, kl_comparisons, kl_lines};
use crate::measure::Gaussianity;

const STYLE: &str = "
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.5rem; overflow-wrap: anywhere } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: 2px 9px; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap }
th { position: sticky; top: 0; background: #f5f5f5; font-weight: 600 }
th:first-child, td:first-child { text-align: left }
tr.cp td { background: #eef5fb }
.wide { overflow-x: auto } dt { font-weight: 600 } dd { margin: 0 0 .3rem } figure { margin: 1rem 0 }
svg { max-width: 100%; height: auto } p { max-width: 75ch }";

pub(super) fn page(report: &Report, plots: &[Plot]) -> String {
    let mut out = String::new();
    let title = escape(&report.sample.title);
    let head = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width\">";
    put(&mut out, format_args!("{head}\n<title>What is lost: {title}</title>\n<style>{STYLE}</style>\n"));
    put(&mut out, format_args!("<h1>What is lost: {title}</h1>\n<dl>"));
    for (name, value) in &report.sample.facts {
        put(&mut out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
    }
    out += "</dl>\n";
    for plot in plots {
        put(&mut out, format_args!("<figure>{}</figure>\n", plot.svg));
    }
    methods(&mut out, report);
    left_out(&mut out, report);
    comparisons(&mut out, report);
    worst_rows(&mut out, report);
    if !report.kl.is_empty() {
        divergences(&mut out, &kl_lines(&report.kl), &kl_comparisons(&report.kl));
    }
    gaussianity(&mut out, &report.gaussianity);
    out += "</html>\n";
    out
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes all that is written");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(out: &mut String, columns: &[&str], rows: impl Iterator<Item = (bool, Vec<String>)>) {
    *out += "<div class=\"wide\"><table>\n<tr>";
    for column in columns {
        put(out, format_args!("<th>{column}</th>"));
    }
    *out += "</tr>\n";
    for (marked, cells) in rows {
        *out += if marked { "<tr class=\"cp\">" } else { "<tr>" };
        for cell in cells {
            put(out, format_args!("<td>{}</td>", escape(&cell)));
        }
        *out += "</tr>\n";
    }
    *out += "</table></div>\n";
}

fn methods(out: &mut String, report: &Report) {
    *out += "<h2>Methods</h2>\n<p>Each at its true size: codebooks and the like are shared among the rows of the table, and fitted \
        to rows that are not measured. Slow methods are run on the first part of the sample. \
        Relative MSE is the squared error of a row over the row's squared length, with its 95 % interval; \
        a readout is the inner product with a random direction, its slope how much of it is kept, \
        its error relative to the readout of the source.</p>\n";
    let traced = report.sample.weights.is_some();
    let mut columns = vec![
        "method",
        "bytes per row",
        "bits per value",
        "rows",
        "relative MSE",
        "median",
        "99 %",
        "worst",
        "worst row",
        "cosine",
        "norm ratio",
        "readout slope",
        "readout error",
    ];
    if traced {
        columns.extend(["relative MSE, traced", "cosine, traced", "norm ratio, traced", "readout error, traced"]);
    }
    let rows = report.methods.iter().map(|line| {
        let mut cells = vec![
            line.method.clone(),
            format!("{:.5}", line.row_bytes).trim_end_matches('0').trim_end_matches('.').to_string(),
            format!("{:.3}", line.bits),
            line.rows.to_string(),
            format!("{:.5} ± {:.5}", line.relative_mse, line.half),
            format!("{:.5}", line.median),
            format!("{:.5}", line.p99),
            format!("{:.5}", line.worst),
            line.worst_row.to_string(),
            format!("{:.5}", line.cosine),
            format!("{:.5}", line.norm_ratio),
            format!("{:.5}", line.readout_slope),
            format!("{:.5}", line.readout_error),
        ];
        if traced {
            let more = [line.traced_mse, line.traced_cosine, line.traced_norm_ratio, line.traced_readout_error];
            cells.extend(more.map(|value| format!("{value:.5}")));
        }
        (line.method.starts_with("cp-"), cells)
    });
    table(out, &columns, rows);
}

fn left_out(out: &mut String, report: &Report) {
    if report.left_out.is_empty() {
        return;
    }
    *out += "<h2>Not measured</h2>\n<dl>";
    for group in &report.left_out {
        let (methods, reason) = (group.methods.join(", "), &group.reason);
        put(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(&methods), escape(reason)));
    }
    *out += "</dl>\n";
}

fn comparisons(out: &mut String, report: &Report) {
    if report.comparisons.is_empty() {
        return;
    }
    *out += "<h2>Against the paper's trellis, at the same bytes</h2>\n\
        <p>Mean relative MSE over that of the paper's code on the same rows, 95 % interval by bootstrap over rows.</p>\n";
    compared(out, "rows", &report.comparisons);
}

fn worst_rows(out: &mut String, report: &Report) {
    let lines = report.worst_rows();
    if lines.is_empty() {
        return;
    }
    *out += "<h2>Rows that suffer most at 2 bits</h2>\n<details><summary>The worst of the sample; the peak is a row's \
        largest magnitude in root mean squares of the row</summary>\n";
    let rows = lines.into_iter().map(|line| {
        let numbers = [line.relative_mse, line.norm, line.peak].map(|value| format!("{value:.4}"));
        (false, [line.method, line.row.to_string()].into_iter().chain(numbers).collect())
    });
    table(out, &["method", "row", "relative MSE", "norm", "peak"], rows);
    *out += "</details>\n";
}

fn compared(out: &mut String, items: &str, lines: &[ComparisonLine]) {
    let rows = lines.iter().map(|line| {
        let cells = vec![
            line.method.clone(),
            line.baseline.clone(),
            line.rows.to_string(),
            format!("{:.4}", line.ratio),
            format!("{:.4} to {:.4}", line.low, line.high),
            format!("{:+.1} %", 100.0 * (line.ratio - 1.0)),
        ];
        (line.high < 1.0, cells)
    });
    table(out, &["method", "against", items, "ratio", "95 % interval", "change"], rows);
}

fn divergences(out: &mut String, lines: &[KlLine], comparisons: &[ComparisonLine]) {
    *out += "<h2>Output KL on the language model</h2>\n\
        <p>KL(original || compressed) of the distribution of the next token, in nats per token, and the change of the \
        loss, with 95 % intervals.</p>\n";
    let rows = |all: bool| {
        lines.iter().filter(move |line| (line.domain == "all") == all).map(|line| {
            let cells = vec![
                line.method.clone(),
                format!("{:.2}", line.row_bytes),
                line.domain.clone(),
                format!("{:.5}", line.relative_mse),
                format!("{:.6} ± {:.6}", line.kl, line.kl_half),
                format!("{:+.5} ± {:.5}", line.loss_change, line.loss_half),
            ];
            (line.method.starts_with("cp-"), cells)
        })
    };
    let columns = ["method", "bytes per row", "domain", "relative MSE", "KL", "loss"];
    table(out, &columns, rows(true));
    *out += "<details><summary>Each domain</summary>\n";
    table(out, &columns, rows(false));
    *out +=
        "</details>\n<p>KL over KL on the same windows, 95 % interval by bootstrap over windows within domains.</p>\n";
    compared(out, "windows", comparisons);
}

fn gaussianity(out: &mut String, found: &Gaussianity) {
    *out += "<h2>How Gaussian the rows are</h2>\n<p>Of rows scaled to unit deviation.</p>\n";
    let percent = |share: [f64; 3]| share.map(|share| format!("{:.2} %", 100.0 * share)).join(", ");
    let lines = [
        ("rows", found.rows.to_string()),
        (
            "mean, skewness, excess kurtosis",
            format!("{:+.4}, {:+.4}, {:+.4}", found.mean, found.skewness, found.excess_kurtosis),
        ),
        ("largest magnitude in a row, 99th percentile", format!("{:.2}", found.p99_largest)),
        ("energy in the first 1, 4, 16 principal directions", percent(found.principal)),
        ("the same for Gaussian rows of this number and width", percent(found.gaussian_principal)),
        ("smallest, median, largest norm", found.norms.map(|norm| format!("{norm:.4}")).join(", ")),
    ];
    table(out, &["", ""], lines.into_iter().map(|(name, value)| (false, vec![name.to_string(), value])));
}
