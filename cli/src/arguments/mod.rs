//! The command line.
//!
//! What each command takes is here; how values are read is in [`values`], what words an option has in [`choices`].

mod choices;
mod values;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::ops::Range;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};
use condprog_checkpoint::family::Family;
use condprog_convert::{MAX_THREADS, PartOf, Sample};
use condprog_core::Rate;
use condprog_core::encoder::ScaleRule;
use condprog_cpu::{ISA_VARIABLE, Isa};

pub(crate) use choices::{Backend, Backends, OnMissing, OnNonFinite, RestoredAs, RowsAs};
pub(crate) use values::{IdList, RateRows, refuse_folder};

use crate::error::Error;
use values::{
    bits, family, id_list, join_tensors, level, number, number_u32, order_rate, output, output_file, rate_rows,
    row_range, share, size,
};

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
        "Environment:\n  {ISA_VARIABLE}=portable|avx2|avx512  use this instruction set; all give the same bits\n  \
         NO_COLOR=1                               no colors\n\nExit status: 0 done, 1 failed, 2 wrong usage, 130 stopped."
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compress tables of a checkpoint; an interrupted run resumes where it was
    Compress(Compress),
    /// Join parts of tables that were compressed separately
    Join(Join),
    /// Restore the tables of a table file, under the names of their sources
    Decompress(Decompress),
    /// Say what a model's tables would take, and what that frees on a machine
    Plan(Plan),
    /// List the tensors of a checkpoint, and what each would be taken for
    List(List),
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
    /// Run the conformance suites over every backend of this build: are all bits right?
    ///
    /// Prints for each backend exact, FAILED, or no device. The environment variable CONDPROG_REQUIRE lists backends, such
    /// as cpu,wgpu, without which the command fails; CONDPROG_SEED=N draws other random cases.
    Conformance,
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
            Command::List(_) => "list",
            Command::Inspect(_) => "inspect",
            Command::Verify(_) => "verify",
            Command::Rows(_) => "rows",
            Command::Demo(_) => "demo",
            Command::Bench(_) => "bench",
            Command::Conformance => "conformance",
            #[cfg(feature = "eval")]
            Command::Eval(_) => "eval",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Compress {
    /// The checkpoint: a folder with an index or one safetensors file, an index, or safetensors files, of which several
    /// need no index
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// The table file to write; with --whole, the folder
    #[arg(long, short, value_name = "OUT", value_parser = PathBufValueParser::new().try_map(output))]
    pub(crate) output: PathBuf,
    /// Rebuild the whole checkpoint: a folder with table files in place of the tables, other files of weights linked
    /// (hard links: the same file under two names), all else copied, and index and config.json updated
    #[arg(long, conflicts_with_all = ["rows", "part"])]
    pub(crate) whole: bool,
    /// With --whole, copy files of weights too, rather than link them
    #[arg(long, requires = "whole")]
    pub(crate) copy: bool,
    /// Say what would be written, and how much room there is; write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) tables: Tables,
    /// Bits per value, 1 to 4 in steps of 0.25
    #[arg(long, default_value = "2")]
    pub(crate) rate: Rate,
    #[command(flatten)]
    _bits: Bits,
    /// Bits per value of some rows of each table, or of the table that is named; may be repeated
    #[arg(long, value_name = "[TABLE:]A..B=RATE", value_parser = rate_rows, conflicts_with = "pairs")]
    pub(crate) rate_rows: Vec<RateRows>,
    #[command(flatten)]
    pub(crate) rate_order: RateOrder,
    /// How hard to search: 0 is fastest, 4 gives the smallest error
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) effort: u8,
    /// What the scale of a row keeps
    #[arg(long, value_name = "SCALE", default_value_t, value_parser = choices::scale_rule())]
    pub(crate) scale: ScaleRule<()>,
    /// What to do with rows that have a NaN or an infinity, or whose scale is too large to store
    #[arg(long, value_enum, default_value_t = OnNonFinite::Error)]
    pub(crate) non_finite: OnNonFinite,
    /// Cut the output into files of at most this size, such as 5GB, with an index beside them. Default: one file; with
    /// --whole, 5GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) shard_size: Option<NonZeroU64>,
    /// Compress these rows of the only table, as a part for join
    #[arg(long, value_name = "A..B", value_parser = row_range)]
    pub(crate) rows: Option<Range<u64>>,
    /// Compress share K of N of the rows of all tables, K from 0, as a part for join
    #[arg(long, value_name = "K/N", value_parser = share, conflicts_with = "rows")]
    pub(crate) part: Option<PartOf>,
    /// Rows per block, the unit of checksums and of resuming. Default: 16 MiB of F32 values
    #[arg(long, value_name = "N", value_parser = number_u32)]
    pub(crate) block_rows: Option<u32>,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) force: Force,
}

/// Which tables of a checkpoint.
#[derive(Debug, Args)]
pub(crate) struct Tables {
    /// The model whose tables to take. Default: the one whose tables are there, when neither --tensor nor --join-tensors
    /// says which; of a file without any, every 2-D tensor of type F32, F16, BF16, F8_E4M3 or I8
    #[arg(long, value_name = "MODEL", value_parser = family(), conflicts_with_all = ["tensors", "join_tensors"])]
    pub(crate) model: Option<Family>,
    /// Tables to take, by name or pattern (* ? [..]); may be repeated
    #[arg(long = "tensor", value_name = "GLOB")]
    pub(crate) tensors: Vec<String>,
    /// Tensors that are one table, in the order of the numbers in their names, which start at 0; {A..B} in the pattern
    /// lists other numbers; may be repeated
    #[arg(long, alias = "segments", value_name = "TABLE=GLOB", value_parser = join_tensors)]
    pub(crate) join_tensors: Vec<(String, String)>,
    /// The tensor with the scales of the tables, where its name and place do not tell: one number for all, or the
    /// scales of all rows of a table. A pattern selects one for each of the tensors that are joined
    #[arg(long, value_name = "NAME|GLOB")]
    pub(crate) scale_tensor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The parts, in any order
    #[arg(value_name = "PART", required = true)]
    pub(crate) parts: Vec<PathBuf>,
    /// The table file to write; files and an index where the parts were made with --shard-size
    #[arg(long, short, value_name = "OUT.safetensors", value_parser = PathBufValueParser::new().try_map(output_file))]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Debug, Args)]
pub(crate) struct Decompress {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// The safetensors file to write; with --whole, the folder
    #[arg(long, short, value_name = "OUT", value_parser = PathBufValueParser::new().try_map(output))]
    pub(crate) output: PathBuf,
    /// Rebuild this checkpoint with the restored tables in place of its own: for a serving stack that knows nothing of
    /// condprog, to measure the loss
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) whole: Option<PathBuf>,
    /// With --whole, copy other files of weights rather than link them
    #[arg(long, requires = "whole")]
    pub(crate) copy: bool,
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
    /// Tensors of a checkpoint that are one table, in the order of the numbers in their names; may be repeated
    #[arg(
        long,
        value_name = "TABLE=GLOB",
        value_parser = join_tensors,
        requires = "checkpoint",
        conflicts_with = "model"
    )]
    pub(crate) join_tensors: Vec<(String, String)>,
    /// The tensor with the scales of the tables, where its name and place do not tell
    #[arg(long, value_name = "NAME", requires = "checkpoint", conflicts_with = "model")]
    pub(crate) scale_tensor: Option<String>,
    /// Rows of a table of another model, such as 384_006_168 or 1e9
    #[arg(
        long,
        value_name = "N",
        value_parser = number,
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
    _bits: Bits,
    /// Bits per value of some rows of each table, or of the table that is named; may be repeated
    #[arg(long, value_name = "[TABLE:]A..B=RATE", value_parser = rate_rows, conflicts_with = "pairs")]
    pub(crate) rate_rows: Vec<RateRows>,
    #[command(flatten)]
    pub(crate) rate_order: RateOrder,
    /// GPUs of the machine
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) gpus: NonZeroU32,
    /// Memory of one GPU, such as 141GB, 80GiB or a number of bytes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<NonZeroU64>,
    /// Bytes that a token takes in the KV cache, such as 70272 or 68KiB: also say how many tokens fit in what is freed
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) kv_bytes_per_token: Option<NonZeroU64>,
}

/// The name that other programs have for the rate; the answer is its name here.
#[derive(Debug, Args)]
struct Bits {
    #[arg(long = "bits", hide = true, value_name = "RATE", value_parser = bits)]
    _bits: Option<Rate>,
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

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// List each segment, also where neighbours are alike. With --json each is listed always
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// The checkpoint it was made from: also check that the rows are those of this source, and measure how far they are
    /// restored from them. Repeated for each file of one without an index
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) against: Vec<PathBuf>,
    /// Rows of each table to code again and compare byte for byte, spread over the table, or all; the first and last row
    /// of each segment are always among them. Default: 256
    #[arg(long, value_name = "N|all", value_parser = sample, requires = "against")]
    pub(crate) sample: Option<Sample>,
    /// Largest relative MSE that a table may have, such as 0.08. Default: none, but rows that are further from the source
    /// than their rate explains are always found
    #[arg(long, value_name = "X", value_parser = max_error, requires = "against")]
    pub(crate) max_error: Option<f64>,
    #[command(flatten)]
    pub(crate) threads: Threads,
}

#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// The table file, or the index or folder of several
    pub(crate) table: PathBuf,
    /// Ids of rows, in the order wanted, with commas between them or, in quotes, spaces; A..B for those from A to before
    /// B; may be repeated
    #[arg(
        long,
        value_name = "ID,ID,...",
        value_parser = id_list,
        allow_hyphen_values = true,
        required_unless_present = "ids_file"
    )]
    pub(crate) ids: Vec<IdList>,
    /// Ids from a file: text as for --ids, on any number of lines; an .npy of integers; or a .safetensors with one tensor
    /// of integers. - for any of them from stdin
    #[arg(long, value_name = "F", conflicts_with = "ids")]
    pub(crate) ids_file: Option<PathBuf>,
    /// The table. Default: the only one
    #[arg(long, value_name = "NAME")]
    pub(crate) tensor: Option<String>,
    /// What to give for an id that names no row (below 0, or not below the number of rows)
    #[arg(long, value_enum, default_value_t = OnMissing::Error)]
    pub(crate) missing: OnMissing,
    /// Number format. Values in bf16 are written to .npy as their bits, uint16: NumPy has no bf16, and
    /// array.view(ml_dtypes.bfloat16) makes them numbers. A .safetensors holds them as BF16
    #[arg(long, value_enum, default_value_t = RowsAs::F32)]
    pub(crate) dtype: RowsAs,
    /// Write the rows to this file: an array of the shape of the ids and one dimension more, in .npy, or in .safetensors
    /// as the tensor "rows". Default: print them
    #[arg(long, short, value_name = "OUT", value_parser = PathBufValueParser::new().try_map(output_file))]
    pub(crate) output: Option<PathBuf>,
    /// The backend that decodes
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
    /// The backend that decodes
    #[arg(long, value_enum, default_value_t = Backends::All)]
    pub(crate) backend: Backends,
    #[command(flatten)]
    pub(crate) level: CpuLevel,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What decodes. With cuda alone, the benchmark of that backend: tables of up to 48 GiB in device and in host
    /// memory, beside plain gathers and copies; of the other options only --save applies to it
    #[arg(long, value_enum, default_value_t = Backends::All)]
    pub(crate) backend: Backends,
    #[command(flatten)]
    pub(crate) level: CpuLevel,
    /// Bits per value
    #[arg(long, default_value = "2")]
    pub(crate) rate: Rate,
    #[command(flatten)]
    _bits: Bits,
    /// Values per row
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) dim: u32,
    /// Rows of the table that does not fit the caches
    #[arg(long, value_name = "N", default_value_t = 1 << 23, value_parser = number_u32)]
    pub(crate) rows: u32,
    /// Ids per request
    #[arg(long, value_name = "N", default_value_t = 4096 * 48, value_parser = number_u32)]
    pub(crate) ids: u32,
    /// Seconds for each figure
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) threads: Threads,
    /// With --backend cuda: also write bench.txt and bench.json to this folder
    #[cfg(feature = "cuda")]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// With --backend cuda: tiny tables, few runs and no conformance suite, to try the program and not the device
    #[cfg(feature = "cuda")]
    #[arg(long, hide = true)]
    pub(crate) small: bool,
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
    #[arg(long, value_name = "TABLE=GLOB", value_parser = join_tensors, alias = "segments", conflicts_with = "tensor")]
    pub(crate) join_tensors: Option<(String, String)>,
    /// The tensor with the scales of the table, where its name and place do not tell
    #[arg(long, value_name = "NAME")]
    pub(crate) scale_tensor: Option<String>,
    /// Ids in the order in which rows were asked for: also weigh rows by how often they are. The same files as for
    /// rows --ids-file; ids that name no row are passed over
    #[arg(long, value_name = "F")]
    pub(crate) trace: Option<PathBuf>,
    /// The folder to write the report to
    #[arg(long, short, value_name = "FOLDER", value_parser = PathBufValueParser::new().try_map(output))]
    pub(crate) output: PathBuf,
    /// Rows to measure, drawn at random. Slow methods take a part of them, at least 512
    #[arg(long, value_name = "N", default_value = "20000", value_parser = number)]
    pub(crate) sample: NonZeroU64,
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
    /// Worker threads. Default: one per processor
    #[arg(long = "threads", value_name = "N", value_parser = threads)]
    pub(crate) count: Option<NonZeroUsize>,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|&count: &NonZeroUsize| count.get() <= MAX_THREADS);
    count.ok_or_else(|| format!("expected 1 to {MAX_THREADS}"))
}

/// How many rows to code again.
fn sample(text: &str) -> Result<Sample, String> {
    match text {
        "all" => Ok(Sample::All),
        _ => text.parse().map(Sample::Rows).map_err(|_| "expected a number of rows, or all".into()),
    }
}

fn max_error(text: &str) -> Result<f64, String> {
    let error = text.parse().ok().filter(|&error: &f64| error.is_finite() && error > 0.0);
    error.ok_or_else(|| "expected a number above 0, such as 0.08".into())
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
    pub(crate) level: Option<Isa>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The checkpoint, as for compress
    #[arg(value_name = "CHECKPOINT", required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// Show only these tensors, by name or pattern (* ? [..]); may be repeated
    #[arg(long = "tensor", value_name = "GLOB")]
    pub(crate) tensors: Vec<String>,
}
