//! The plots, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::Report;

const SIZE: (u32, u32) = (820, 480);
/// Font of axes and legends.
const LABELS: (&str, u32) = ("sans-serif", 14);
/// Colours that stay apart for most eyes.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
    RGBColor(140, 86, 75),
    RGBColor(0, 0, 0),
];

/// A plot.
pub(super) struct Plot {
    pub(super) name: &'static str,
    pub(super) svg: String,
}

/// A series of points, joined by a line or not.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    joined: bool,
    marked: bool,
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Every plot that the report has data for.
pub(super) fn all(report: &Report) -> Vec<Plot> {
    let mut plots = vec![rate_and_error(report)];
    plots.extend(storage_and_kl(report));
    plots.extend(row_errors(report));
    plots.extend(scales(report));
    plots.extend(variants(report));
    plots
}

/// Families of methods that are drawn as one series: name, prefix and suffix of the methods' names, joined.
const FAMILIES: [(&str, &str, &str, bool); 8] = [
    ("CP, effort 0", "cp-", "-e0-norm", true),
    ("CP, effort 4", "cp-", "-e4-norm", true),
    ("paper's HYB trellis", "hyb-", "-norm", true),
    ("round to nearest, best clip", "rtn-", "-sym-clip", true),
    ("round to nearest, min-max", "rtn-", "-asym-range", true),
    ("MXFP4, NVFP4", "", "fp4-search", false),
    ("Lloyd-Max", "lloyd-max-", "", true),
    ("k-means VQ", "vq-", "", false),
];

fn families<'a, T>(lines: &'a [T], name: impl Fn(&T) -> &str, point: impl Fn(&T) -> (f64, f64)) -> Vec<Series> {
    let of = |&(family, prefix, suffix, joined): &(&str, &str, &str, bool)| {
        let belongs = |line: &&'a T| name(line).starts_with(prefix) && name(line).ends_with(suffix);
        let mut points: Vec<_> = lines.iter().filter(belongs).map(&point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: family.into(), points, joined, marked: true }
    };
    FAMILIES.iter().map(of).filter(|series| !series.points.is_empty()).collect()
}

fn rate_and_error(report: &Report) -> Plot {
    let mut series = families(&report.methods, |line| &line.method, |line| (line.bits, line.relative_mse));
    let bound = (4..=18).map(|quarter| f64::from(quarter) / 4.0).map(|bits| (bits, libm::exp2(-2.0 * bits))).collect();
    series.push(Series { name: "bound for Gaussian rows".into(), points: bound, joined: true, marked: false });
    let title = "Rate against relative MSE";
    let svg = points(title, "stored bits per value", "mean relative MSE", &series, true);
    Plot { name: "rate-mse", svg }
}

fn storage_and_kl(report: &Report) -> Option<Plot> {
    let found: Vec<_> = report.kl.iter().map(|m| (m.method.as_str(), m.row_bytes, m.divergence.kl().mean)).collect();
    let mut series = families(&found, |line| line.0, |line| (line.1, line.2));
    let projection = found.iter().filter(|line| line.0.starts_with("cp-") && line.0.ends_with("-e0-projection"));
    let mut points_of: Vec<_> = projection.map(|line| (line.1, line.2)).collect();
    points_of.sort_by(|a, b| a.0.total_cmp(&b.0));
    if !points_of.is_empty() {
        let name = "CP, effort 0, projection scale".into();
        series.push(Series { name, points: points_of, joined: true, marked: true });
    }
    if series.is_empty() {
        return None;
    }
    let title = "Storage against output KL";
    let svg = points(title, "bytes per row", "KL per token (nats)", &series, true);
    Some(Plot { name: "storage-kl", svg })
}

fn row_errors(report: &Report) -> Option<Plot> {
    let wanted = ["cp-2-e0-norm", "cp-2-e4-norm", "hyb-2-norm", "vq-8", "lloyd-max-2", "rtn-2-asym-range"];
    let find = |name: &&str| report.methods.iter().position(|line| line.method == **name);
    let chosen: Vec<usize> = wanted.iter().filter_map(find).collect();
    let logs = |index: usize| report.errors[index].iter().filter(|e| **e > 0.0).map(|e| libm::log10(*e));
    let all = || chosen.iter().flat_map(|&index| logs(index));
    let mut sorted: Vec<f64> = all().collect();
    sorted.sort_by(f64::total_cmp);
    // The last bin takes the few rows beyond: one bad row must not squeeze all others into a corner.
    let (low, high) = (*sorted.first()?, sorted[(sorted.len() - 1) * 999 / 1000]);
    if low >= high {
        return None;
    }
    let series: Vec<Series> = chosen
        .iter()
        .map(|&index| Series {
            name: report.methods[index].method.clone(),
            points: histogram(logs(index), low, high, 120),
            joined: true,
            marked: false,
        })
        .collect();
    let title = "Relative MSE of each row, methods of about 2 bits";
    let svg = points(title, "relative MSE of the row, base-10 logarithm", "share of rows", &series, false);
    Some(Plot { name: "row-errors", svg })
}

fn scales(report: &Report) -> Option<Plot> {
    let (low, high) = report.scales.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &s| (l.min(s), h.max(s)));
    if report.scales.is_empty() {
        return None;
    }
    // Scales have 64 steps per octave: much finer bins would show the steps, not the rows.
    let high = high.max(low + 0.1);
    let bins = (((high - low) / 0.04) as usize).clamp(4, 80);
    let points_of = histogram(report.scales.iter().copied(), low, high, bins);
    let series = [Series { name: "rows".into(), points: points_of, joined: true, marked: false }];
    let title = "Scales, 2 bits, effort 0";
    let svg = points(title, "scale, base-2 logarithm", "share of rows", &series, false);
    Some(Plot { name: "scales", svg })
}

/// Share of the values in each of `bins` equal bins, at the middle of the bin.
fn histogram(values: impl Iterator<Item = f64>, low: f64, high: f64, bins: usize) -> Vec<(f64, f64)> {
    let mut counts = vec![0usize; bins];
    for value in values {
        counts[(((value - low) / (high - low) * bins as f64) as usize).min(bins - 1)] += 1;
    }
    let total = counts.iter().sum::<usize>().max(1) as f64;
    let middle = |bin: usize| low + (bin as f64 + 0.5) * (high - low) / bins as f64;
    counts.into_iter().enumerate().map(|(bin, count)| (middle(bin), count as f64 / total)).collect()
}

fn variants(report: &Report) -> Option<Plot> {
    let total: usize = report.variants.iter().sum();
    if total == 0 {
        return None;
    }
    let shares: Vec<f64> = report.variants.iter().map(|&count| count as f64 / total as f64).collect();
    let highest = shares.iter().fold(0.0f64, |a, &b| a.max(b)) * 1.1;
    let title = "Variants, 2 bits, effort 4";
    let mut svg = String::new();
    let draw = |svg: &mut String| -> Drawn {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d((0..15).into_segmented(), 0.0..highest)?;
        chart.configure_mesh().disable_x_mesh().x_desc("variant").y_desc("share of rows").label_style(LABELS).draw()?;
        let bars = Histogram::vertical(&chart).style(COLOURS[0].filled()).margin(4);
        chart.draw_series(bars.data((0..).zip(shares.iter().copied())))?;
        area.present()
    };
    draw(&mut svg).expect("a string takes all that is drawn");
    Some(Plot { name: "variants", svg })
}

/// Series over linear x and linear or logarithmic y.
fn points(title: &str, x: &str, y: &str, series: &[Series], logarithmic: bool) -> String {
    let all = || series.iter().flat_map(|series| &series.points).filter(|p| !logarithmic || p.1 > 0.0);
    let span = |of: fn(&(f64, f64)) -> f64| {
        all().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
    };
    let ((left, right), (low, high)) = (span(|p| p.0), span(|p| p.1));
    let margin = ((right - left) * 0.03).max(1e-9);
    let across = left - margin..right + margin;
    let mut svg = String::new();
    let drawn = if logarithmic {
        draw(&mut svg, title, x, y, series, across, (low / 1.3..high * 1.3).log_scale(), &|v| format!("{v:.0e}"))
    } else {
        draw(&mut svg, title, x, y, series, across, 0.0..high * 1.05, &|v| format!("{v:.3}"))
    };
    drawn.expect("a string takes all that is drawn");
    svg
}

#[expect(clippy::too_many_arguments, reason = "what a chart has")]
fn draw<Y>(
    svg: &mut String,
    title: &str,
    x: &str,
    y: &str,
    series: &[Series],
    across: std::ops::Range<f64>,
    up: Y,
    label: &dyn Fn(&f64) -> String,
) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .y_label_formatter(label)
        .light_line_style(TRANSPARENT)
        .label_style(LABELS)
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        // Further series reuse colours, thinner.
        let (colour, width) = (COLOURS[index % COLOURS.len()], if index < COLOURS.len() { 2 } else { 1 });
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(width));
        let line = if series.joined { series.points.clone() } else { Vec::new() };
        let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(width)))?;
        drawn.label(&series.name).legend(key);
        if series.marked {
            chart.draw_series(series.points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?;
        }
    }
    if series.len() > 1 {
        let mut labels = chart.configure_series_labels();
        labels.label_font(LABELS);
        labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85));
        labels.border_style(RGBColor(200, 200, 200)).draw()?;
    }
    area.present()
}
