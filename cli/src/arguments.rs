//! The command line.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use condprog_core::{Dtype, Missing, Rate};
use condprog_cpu::{LEVEL_VARIABLE, Level};
use condprog_table::family::Family;
use condprog_table::{NonFinite, PartOf, RestoredDtype, ScaleMode};

use crate::error::Error;

/// Compresses the hashed n-gram tables of language models, checks the result, and decodes rows from it.
#[derive(Debug, Parser)]
#[command(name = "condprog", version, propagate_version = true, after_help = environment())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    // Behind all others, however many options a command has.
    /// Print one JSON object instead of text
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long, short, global = true, display_order = 101)]
    pub(crate) quiet: bool,
}

fn environment() -> String {
    format!(
        "Environment:\n  {LEVEL_VARIABLE}=portable|avx2|avx512  use this instruction set; all give the same bits\n  \
         NO_COLOR=1                               no colors\n\nExit status: 0 done, 1 failed, 2 wrong usage."
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compress tables of a checkpoint; a run that was cut short goes on where it was
    Compress(Compress),
    /// Put together parts of tables that were compressed apart
    Join(Join),
    /// Restore the tables of a table file, under the names of their sources
    Decompress(Decompress),
    /// Say what a model's tables would take, and what a machine gets back
    Plan(Plan),
    /// Say what is in a table file
    Inspect(Inspect),
    /// Check a table file, and how far its rows are from their source
    Verify(Verify),
    /// Decode rows by their ids
    Rows(Rows),
    /// Compress, verify and decode a small real table that the program carries
    Demo(Demo),
    /// Measure encoding and decoding on this machine
    Bench(Bench),
    /// Report what this and other methods lose on a table: a page, CSV files and plots
    #[cfg(feature = "eval")]
    Eval(Eval),
}

impl Command {
    /// As the user types it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Compress(_) => "compress",
            Command::Join(_) => "join",
            Command::Decompress(_) => "decompress",
            Command::Plan(_) => "plan",
            Command::Inspect(_) => "inspect",
            Command::Verify(_) => "verify",
            Command::Rows(_) => "rows",
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            #[cfg(feature = "eval")]
            Command::Eval(_) => "eval",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Compress {
    /// The checkpoint: a safetensors file, an index, or a folder with an index or one file
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) input: PathBuf,
    /// The table file to write; with --whole, the folder
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Make the whole checkpoint anew: a folder with table files in place of the tables, every other file of the
    /// checkpoint linked or copied, its index and config.json brought up to date
    #[arg(long, conflicts_with_all = ["rows", "part"])]
    pub(crate) whole: bool,
    #[command(flatten)]
    pub(crate) tables: Tables,
    /// Bits per value, 1 to 4 in steps of 0.25
    #[arg(long, default_value = "2")]
    pub(crate) rate: Rate,
    /// Bits per value of some rows of each table, or of the table that is named; may be repeated
    #[arg(long, value_name = "[TABLE:]A..B=RATE", value_parser = rate_rows, conflicts_with = "pairs")]
    pub(crate) rate_rows: Vec<RateRows>,
    #[command(flatten)]
    pub(crate) rate_order: RateOrder,
    /// How hard to search: 0 is fastest, 4 gives the smallest error
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) effort: u8,
    /// What the scale of a row keeps
    #[arg(long, value_enum, default_value_t = Scale::Projection)]
    pub(crate) scale: Scale,
    /// What to do with rows that have a NaN or an infinity, or whose scale is too large to store
    #[arg(long, value_enum, default_value_t = OnNonFinite::Error)]
    pub(crate) non_finite: OnNonFinite,
    /// Cut the output into files of at most this size, such as 5GB, with an index beside them. Default: one file; with
    /// --whole, 5GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) shard_size: Option<NonZeroU64>,
    /// Code these rows of the only table, to be joined with others
    #[arg(long, value_name = "A..B", value_parser = row_range)]
    pub(crate) rows: Option<Range<u64>>,
    /// Code share K of N of the rows of all tables, K from 0, to be joined with the others
    #[arg(long, value_name = "K/N", value_parser = share, conflicts_with = "rows")]
    pub(crate) part: Option<PartOf>,
    /// Rows that have one checksum, and are resumed as one. Default: 16 MiB of F32 values
    #[arg(long, value_name = "N")]
    pub(crate) block_rows: Option<u32>,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Which tables of a checkpoint.
#[derive(Debug, Args)]
pub(crate) struct Tables {
    /// The model whose tables to take. Default: the one whose tables are there, when neither --tensor nor --segments says
    /// which; of a file without any, every 2-D tensor of type F32, F16, BF16, F8_E4M3 or I8
    #[arg(long, value_name = "MODEL", value_parser = family(), conflicts_with_all = ["tensors", "segments"])]
    pub(crate) model: Option<Family>,
    /// Tables to take, by name or pattern (* ? [..]); may be repeated
    #[arg(long = "tensor", value_name = "GLOB")]
    pub(crate) tensors: Vec<String>,
    /// Tensors that are one table, in the order of the numbers in their names; may be repeated
    #[arg(long, value_name = "TABLE=GLOB", value_parser = segments)]
    pub(crate) segments: Vec<(String, String)>,
    /// The tensor with the scales of the tables, where its name or place does not tell
    #[arg(long, value_name = "NAME")]
    pub(crate) scale_tensor: Option<String>,
}

/// A range of rows with a rate of its own.
#[derive(Clone, Debug)]
pub(crate) struct RateRows {
    /// Of this table; of all if `None`.
    pub(crate) table: Option<String>,
    pub(crate) rows: Range<u64>,
    pub(crate) rate: Rate,
}

fn rate_rows(text: &str) -> Result<RateRows, String> {
    let (place, rate) = text.rsplit_once('=').ok_or("expected rows and a rate, such as 0..1000=3")?;
    let (table, rows) = match place.rsplit_once(':') {
        Some((table, rows)) => (Some(table.to_string()), rows),
        None => (None, place),
    };
    let rate = rate.parse().map_err(|error| format!("{rate:?} is {error}"))?;
    Ok(RateRows { table, rows: row_range(rows)?, rate })
}

/// Rows from the first to before the second.
fn row_range(text: &str) -> Result<Range<u64>, String> {
    let expected = || format!("{text:?}: expected A..B, rows from A to before B, A below B, such as 0..1000");
    let (start, end) = text.split_once("..").ok_or_else(expected)?;
    let number = |text: &str| text.replace('_', "").parse::<u64>().map_err(|_| expected());
    let range = number(start)?..number(end)?;
    if range.is_empty() { Err(expected()) } else { Ok(range) }
}

fn share(text: &str) -> Result<PartOf, String> {
    let expected = || format!("{text:?}: expected K/N, K from 0 to N - 1, such as 0/16");
    let (index, of) = text.split_once('/').ok_or_else(expected)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let (index, of) = (number(index)?, number(of)?);
    if index < of { Ok(PartOf::Share { index, of }) } else { Err(expected()) }
}

fn segments(text: &str) -> Result<(String, String), String> {
    let (table, pattern) = text.split_once('=').ok_or("expected a name and a pattern, such as table=shard_*.weight")?;
    if table.is_empty() {
        return Err("the name of the table is empty".into());
    }
    Ok((table.into(), pattern.into()))
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The parts, in any order
    #[arg(value_name = "PART", required = true)]
    pub(crate) parts: Vec<PathBuf>,
    /// The table file to write; files and an index where the parts were made with --shard-size
    #[arg(long, short, value_name = "OUT.safetensors")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Debug, Args)]
pub(crate) struct Decompress {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// The safetensors file to write; with --whole, the folder
    #[arg(long, short, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Make this checkpoint anew with the restored tables in place of its own: what a serving stack that knows nothing
    /// of condprog can load, to measure the loss
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) whole: Option<PathBuf>,
    /// Number format
    #[arg(long, value_enum, default_value_t = RestoredAs::Bf16)]
    pub(crate) dtype: RestoredAs,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A checkpoint: a folder, an index or a safetensors file, of which the headers are read
    #[arg(value_name = "CHECKPOINT", required_unless_present_any = ["model", "rows"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// The model: at its published size, or which tables the checkpoint has. Default: told from the names of the
    /// checkpoint's tensors
    #[arg(long, value_name = "MODEL", value_parser = family())]
    pub(crate) model: Option<Family>,
    /// Tables of a checkpoint of another model, by name or pattern (* ? [..]); may be repeated
    #[arg(long = "tensor", value_name = "GLOB", requires = "checkpoint", conflicts_with = "model")]
    pub(crate) tensors: Vec<String>,
    /// Rows of a table of another model
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["model", "checkpoint"],
        requires_all = ["dim", "source_bytes"]
    )]
    pub(crate) rows: Option<NonZeroU64>,
    /// Values per row
    #[arg(long, value_name = "N", requires = "rows")]
    pub(crate) dim: Option<u32>,
    /// Bytes per row in the source, scales included. Default: those of the model's checkpoint; of two releases the one
    /// with more
    #[arg(long, value_name = "N", conflicts_with = "checkpoint")]
    pub(crate) source_bytes: Option<NonZeroU64>,
    /// Bits per value, 1 to 4 in steps of 0.25
    #[arg(long, default_value = "2")]
    pub(crate) rate: Rate,
    #[command(flatten)]
    pub(crate) rate_order: RateOrder,
    /// GPUs of the machine
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) gpus: NonZeroU32,
    /// Memory of one GPU, such as 141GB, 80GiB or a number of bytes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<NonZeroU64>,
    /// What a token takes in the KV cache, such as 70272 or 68KiB: also say how many fit in what is freed
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) kv_bytes_per_token: Option<NonZeroU64>,
}

/// Rates that some orders of n-gram have.
#[derive(Clone, Debug, Args)]
pub(crate) struct RateOrder {
    /// Bits per value of the rows of an order of n-gram, where the model's are known, such as 2=3,3=2,4=1.5. Other
    /// rows have --rate
    #[arg(long = "rate-order", value_name = "N=RATE,...", value_delimiter = ',', value_parser = order_rate)]
    pairs: Vec<(u32, Rate)>,
}

impl RateOrder {
    /// The rate of each order that has one.
    pub(crate) fn rates(&self) -> Result<BTreeMap<u32, Rate>, Error> {
        let mut rates = BTreeMap::new();
        for &(order, rate) in &self.pairs {
            if rates.insert(order, rate).is_some() {
                return Err(Error::Usage(format!("--rate-order names {order}-grams twice, expected once")));
            }
        }
        Ok(rates)
    }
}

fn order_rate(text: &str) -> Result<(u32, Rate), String> {
    let (order, rate) = text.split_once('=').ok_or("expected an order and a rate, such as 2=3")?;
    let order = order.parse().map_err(|_| format!("order is {order:?}, expected a number such as 2"))?;
    Ok((order, rate.parse().map_err(|error| format!("{rate:?} is {error}"))?))
}

fn family() -> impl clap::builder::TypedValueParser<Value = Family> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(Family::ALL.map(Family::name)).try_map(|name| name.parse::<Family>())
}

/// A number of bytes, with a unit of powers of 1000 or of 1024.
fn size(text: &str) -> Result<NonZeroU64, String> {
    let expected = || "expected a size of at least 1 byte, below 2^64, such as 141GB, 80GiB or 70272".to_string();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let units = ["", "b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"];
    let place = units.iter().position(|known| *known == unit).ok_or_else(expected)? as u32;
    let unit: u128 = match place {
        0 | 1 => 1,
        2..6 => 1000u128.pow(place - 1),
        _ => 1024u128.pow(place - 5),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Digits after the point past a byte are cut off.
    let all: u128 = format!("{whole}{fraction}").parse().map_err(|_| expected())?;
    let bytes = all.checked_mul(unit).zip(10u128.checked_pow(fraction.len() as u32)).map(|(all, tens)| all / tens);
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).and_then(NonZeroU64::new);
    bytes.filter(|_| !whole.is_empty()).ok_or_else(expected)
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// The checkpoint it was made from: also measure how far restored rows are from theirs
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// Ids of rows, in the order wanted
    #[arg(
        long,
        value_name = "ID,ID,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        required_unless_present = "ids_file"
    )]
    pub(crate) ids: Vec<i64>,
    /// Ids from a file: text with white space or commas between them, an integer .npy, or a .safetensors with one
    /// integer tensor; - for text from stdin
    #[arg(long, value_name = "F", conflicts_with = "ids")]
    pub(crate) ids_file: Option<PathBuf>,
    /// The table. Default: the only one
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,
    /// What an id gives that names no row (below 0, or not below the number of rows)
    #[arg(long, value_enum, default_value_t = OnMissing::Error)]
    pub(crate) missing: OnMissing,
    /// Number format. Values in bf16 are written to .npy as their bits, uint16: NumPy has no bf16, and
    /// array.view(ml_dtypes.bfloat16) makes them numbers
    #[arg(long, value_enum, default_value_t = RowsAs::F32)]
    pub(crate) dtype: RowsAs,
    /// Write the rows to this file as an array [ids, values per row]. Default: print them
    #[arg(long, short, value_name = "OUT.npy")]
    pub(crate) output: Option<PathBuf>,
    /// What decodes
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    #[command(flatten)]
    pub(crate) level: CpuLevel,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How hard to search: 0 is fastest, 4 gives the smallest error
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) effort: u8,
    /// What decodes
    #[arg(long, value_enum, default_value_t = Backends::All)]
    pub(crate) backend: Backends,
    #[command(flatten)]
    pub(crate) level: CpuLevel,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What decodes. With cuda alone, the benchmark of that backend: tables of up to 48 GiB in device and in host
    /// memory, beside plain gathers and copies; the other options do not apply to it
    #[arg(long, value_enum, default_value_t = Backends::All)]
    pub(crate) backend: Backends,
    #[command(flatten)]
    pub(crate) level: CpuLevel,
    /// Bits per value
    #[arg(long, default_value = "2")]
    pub(crate) rate: Rate,
    /// Values per row
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) dim: u32,
    /// Rows of the table that does not fit the caches
    #[arg(long, value_name = "N", default_value_t = 1 << 23, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rows: u32,
    /// Ids per request
    #[arg(long, value_name = "N", default_value_t = 4096 * 48, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ids: u32,
    /// Seconds for each figure
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

#[cfg(feature = "eval")]
#[derive(Debug, Args)]
pub(crate) struct Eval {
    /// The checkpoint with the table: a safetensors file, an index, or a folder with an index or one file
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) input: PathBuf,
    /// The table, by the name of its tensor, or that of a table which a known model has in several tensors. Default: the
    /// only one there is
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,
    /// Tensors that are the table, in the order of the numbers in their names
    #[arg(long, value_name = "TABLE=GLOB", value_parser = segments, conflicts_with = "tensor", alias = "segments")]
    pub(crate) join_tensors: Option<(String, String)>,
    /// The tensor with the scales of the table, where its name or place does not tell
    #[arg(long, value_name = "NAME")]
    pub(crate) scale_tensor: Option<String>,
    /// Ids in the order in which rows were asked for: also weigh rows by how often they are. The same files as for
    /// rows --ids-file; ids that name no row are passed over
    #[arg(long, value_name = "F")]
    pub(crate) trace: Option<PathBuf>,
    /// The folder to write the report to
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Rows to measure, drawn at random. Slow methods take a part of them, at least 512
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample: u64,
    /// Which rows are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Methods, by name or pattern (* ? [..]), such as cp-2-* or nvfp4; may be repeated. Default: every one
    #[arg(long = "method", value_name = "GLOB")]
    pub(crate) methods: Vec<String>,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Threads {
    /// Threads that work. Default: one per processor
    #[arg(long = "threads", value_name = "N")]
    pub(crate) count: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Force {
    /// Overwrite the output
    #[arg(long = "force")]
    pub(crate) on: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CpuLevel {
    /// Instruction set of the CPU backend. Default: that of the environment variable, else the best here
    #[arg(long = "cpu-level", value_name = "LEVEL", value_parser = level())]
    pub(crate) level: Option<Level>,
}

fn level() -> impl clap::builder::TypedValueParser<Value = Level> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>())
}

/// What the scale of a row keeps; see [`ScaleMode`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scale {
    /// The length of the row
    Norm,
    /// The row's projection on its source
    Projection,
    /// The smallest squared error
    LeastSquares,
    /// One scale for the whole table
    Global,
}

impl From<Scale> for ScaleMode {
    fn from(scale: Scale) -> ScaleMode {
        match scale {
            Scale::Norm => ScaleMode::Norm,
            Scale::Projection => ScaleMode::Projection,
            Scale::LeastSquares => ScaleMode::LeastSquares,
            Scale::Global => ScaleMode::Global,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnNonFinite {
    /// Stop and name the value
    Error,
    /// Make them zero rows, and count them
    Zero,
}

impl From<OnNonFinite> for NonFinite {
    fn from(policy: OnNonFinite) -> NonFinite {
        match policy {
            OnNonFinite::Error => NonFinite::Error,
            OnNonFinite::Zero => NonFinite::Zero,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnMissing {
    /// A row of zeros
    Zero,
    /// An error that names the id
    Error,
}

impl From<OnMissing> for Missing {
    fn from(missing: OnMissing) -> Missing {
        match missing {
            OnMissing::Zero => Missing::Zero,
            OnMissing::Error => Missing::Error,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RowsAs {
    Bf16,
    F16,
    F32,
}

impl From<RowsAs> for Dtype {
    fn from(dtype: RowsAs) -> Dtype {
        match dtype {
            RowsAs::Bf16 => Dtype::Bf16,
            RowsAs::F16 => Dtype::F16,
            RowsAs::F32 => Dtype::F32,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RestoredAs {
    Bf16,
    F16,
    F32,
    /// That of the source
    Source,
}

impl From<RestoredAs> for RestoredDtype {
    fn from(dtype: RestoredAs) -> RestoredDtype {
        match dtype {
            RestoredAs::Bf16 => RestoredDtype::Bf16,
            RestoredAs::F16 => RestoredDtype::F16,
            RestoredAs::F32 => RestoredDtype::F32,
            RestoredAs::Source => RestoredDtype::Source,
        }
    }
}

/// A backend of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU
    Cpu,
    /// A GPU through WebGPU; the environment variable WGPU_ADAPTER_NAME chooses which
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// An NVIDIA GPU; the environment variable CUDA_VISIBLE_DEVICES chooses which
    #[cfg(feature = "cuda")]
    Cuda,
}

/// One backend, or all of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backends {
    /// Every backend of this build
    All,
    /// The CPU
    Cpu,
    /// The GPUs that WebGPU reaches
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// The NVIDIA GPUs
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Backends {
    /// The backends meant.
    pub(crate) fn list(self) -> Vec<Backend> {
        match self {
            Backends::All => Backend::value_variants().to_vec(),
            Backends::Cpu => vec![Backend::Cpu],
            #[cfg(feature = "wgpu")]
            Backends::Wgpu => vec![Backend::Wgpu],
            #[cfg(feature = "cuda")]
            Backends::Cuda => vec![Backend::Cuda],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        let cases = [
            ("141GB", 141_000_000_000),
            ("141 gb", 141_000_000_000),
            ("80GiB", 80 << 30),
            ("1.5KiB", 1536),
            ("0.5kB", 500),
            ("1.0001kB", 1000),
            ("70272", 70272),
            ("7b", 7),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        let zeros = format!("1.{}1GB", "0".repeat(60));
        for text in
            ["", "GB", ".5GB", "1..5GB", "1.5.5", "-1", "0", "0.1", "1e9", "141G", "18446744073709551616", &zeros]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
