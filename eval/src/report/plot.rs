//! The plots, as SVG and as PNG.

use std::ops::Range;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::register_font;

use super::Report;

/// Size of an SVG in pixels.
const SIZE: (u32, u32) = (820, 480);
/// How many times as large a PNG is, for screens of two pixels to one, and for paper.
const ZOOM: u32 = 2;
/// Name of the font. PNGs have the one that the program carries, so that they are the same on every machine; in an SVG
/// the viewer chooses.
const FONT: &str = "sans-serif";
const TITLE_SIZE: u32 = 20;
/// Of axes and legends.
const LABEL_SIZE: u32 = 14;
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

/// Names of the plots that a report may have.
pub(super) const NAMES: [&str; 5] = ["rate-mse", "storage-kl", "row-errors", "scales", "variants"];

/// A plot.
pub(super) struct Plot {
    pub(super) name: &'static str,
    pub(super) svg: String,
    pub(super) png: Vec<u8>,
}

/// What is drawn.
struct Chart {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    marks: Marks,
}

enum Marks {
    /// Over linear x and linear y.
    Linear(Vec<Series>),
    /// Over linear x and logarithmic y.
    Logarithmic(Vec<Series>),
    /// One bar for each whole number from 0 on.
    Bars(Vec<f64>),
}

/// A series of points, joined by a line or not.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    joined: bool,
    marked: bool,
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

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
    let marks = Marks::Logarithmic(series);
    Chart { title, x: "stored bits per value", y: "mean relative MSE", marks }.plot("rate-mse")
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
    let marks = Marks::Logarithmic(series);
    Some(Chart { title, x: "bytes per row", y: "KL per token (nats)", marks }.plot("storage-kl"))
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
    let x = "relative MSE of the row, base-10 logarithm";
    Some(Chart { title, x, y: "share of rows", marks: Marks::Linear(series) }.plot("row-errors"))
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
    let series = vec![Series { name: "rows".into(), points: points_of, joined: true, marked: false }];
    let (title, x) = ("Scales, 2 bits, effort 0", "scale, base-2 logarithm");
    Some(Chart { title, x, y: "share of rows", marks: Marks::Linear(series) }.plot("scales"))
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
    let (title, marks) = ("Variants, 2 bits, effort 4", Marks::Bars(shares));
    Some(Chart { title, x: "variant", y: "share of rows", marks }.plot("variants"))
}

impl Chart {
    fn plot(&self, name: &'static str) -> Plot {
        debug_assert!(NAMES.contains(&name), "{name} is not among the names that are looked for before any work");
        static FONTS: Once = Once::new();
        FONTS.call_once(|| {
            let found = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
            assert!(found.is_ok(), "the font that the program carries is sound");
        });
        let mut svg = String::new();
        let drawn = self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), 1);
        drawn.expect("a string takes all that is drawn");
        let size = (SIZE.0 * ZOOM, SIZE.1 * ZOOM);
        let mut pixels = vec![0; 3 * (size.0 * size.1) as usize];
        let drawn = self.draw(&BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area(), ZOOM);
        drawn.expect("memory takes all that is drawn");
        Plot { name, svg, png: encode_png(size, &pixels) }
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, zoom: u32) -> Drawn<B> {
        area.fill(&WHITE)?;
        match &self.marks {
            Marks::Linear(series) => {
                let ((left, right), (_, high)) = spans(series.iter().flat_map(|series| &series.points));
                self.draw_series(area, zoom, series, margins(left, right), 0.0..high * 1.05, &|v| format!("{v:.3}"))?;
            }
            Marks::Logarithmic(series) => {
                let points = series.iter().flat_map(|series| &series.points);
                let ((left, right), (low, high)) = spans(points.filter(|point| point.1 > 0.0));
                let up = (low / 1.3..high * 1.3).log_scale();
                self.draw_series(area, zoom, series, margins(left, right), up, &|v| format!("{v:.0e}"))?;
            }
            Marks::Bars(shares) => self.draw_bars(area, zoom, shares)?,
        }
        area.present()
    }

    /// Title and room for the axes.
    fn builder<'a, 'b, B: DrawingBackend>(
        &self,
        area: &'a DrawingArea<B, Shift>,
        zoom: u32,
    ) -> ChartBuilder<'a, 'b, B> {
        let mut builder = ChartBuilder::on(area);
        builder.caption(self.title, (FONT, TITLE_SIZE * zoom)).margin(12 * zoom);
        builder.x_label_area_size(44 * zoom).y_label_area_size(70 * zoom);
        builder
    }

    fn draw_bars<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, zoom: u32, shares: &[f64]) -> Drawn<B> {
        let highest = shares.iter().fold(0.0f64, |a, &b| a.max(b)) * 1.1;
        let last = shares.len() as i32 - 1;
        let mut chart = self.builder(area, zoom).build_cartesian_2d((0..last).into_segmented(), 0.0..highest)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_desc(self.x).y_desc(self.y).light_line_style(TRANSPARENT);
        mesh.label_style((FONT, LABEL_SIZE * zoom)).draw()?;
        let bars = (0..).zip(shares).map(|(bar, &share)| {
            let ends = [bar, bar + 1].map(SegmentValue::Exact);
            let mut area = Rectangle::new([(ends[0].clone(), 0.0), (ends[1].clone(), share)], COLOURS[0].filled());
            area.set_margin(0, 0, 4 * zoom, 4 * zoom);
            area
        });
        chart.draw_series(bars)?;
        Ok(())
    }

    fn draw_series<B: DrawingBackend, Y>(
        &self,
        area: &DrawingArea<B, Shift>,
        zoom: u32,
        series: &[Series],
        across: Range<f64>,
        up: Y,
        label: &dyn Fn(&f64) -> String,
    ) -> Drawn<B>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let mut chart = self.builder(area, zoom).build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x).y_desc(self.y).y_label_formatter(label).light_line_style(TRANSPARENT);
        mesh.label_style((FONT, LABEL_SIZE * zoom)).draw()?;
        let key_length = (18 * zoom) as i32;
        for (index, series) in series.iter().enumerate() {
            // Further series reuse colours, thinner.
            let width = zoom * if index < COLOURS.len() { 2 } else { 1 };
            let style = COLOURS[index % COLOURS.len()].stroke_width(width);
            let line = if series.joined { series.points.clone() } else { Vec::new() };
            let drawn = chart.draw_series(LineSeries::new(line, style))?;
            drawn.label(&series.name).legend(move |(x, y)| PathElement::new([(x, y), (x + key_length, y)], style));
            if series.marked {
                let dot = |&point: &(f64, f64)| Circle::new(point, 4 * zoom, style.filled());
                chart.draw_series(series.points.iter().map(dot))?;
            }
        }
        if series.len() > 1 {
            let mut labels = chart.configure_series_labels();
            labels.label_font((FONT, LABEL_SIZE * zoom)).legend_area_size(30 * zoom).margin(10 * zoom);
            labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85));
            labels.border_style(RGBColor(200, 200, 200)).draw()?;
        }
        Ok(())
    }
}

/// Least and largest x and y.
fn spans<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> ((f64, f64), (f64, f64)) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    points.fold((none, none), |(x, y), p| ((x.0.min(p.0), x.1.max(p.0)), (y.0.min(p.1), y.1.max(p.1))))
}

fn margins(left: f64, right: f64) -> Range<f64> {
    let margin = ((right - left) * 0.03).max(1e-9);
    left - margin..right + margin
}

fn encode_png((width, height): (u32, u32), pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.expect("memory takes all that is written");
    bytes
}
