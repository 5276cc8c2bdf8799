//! `condprog rows`

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use condprog_convert::NewFile;
use condprog_core::decoder::names_row;
use condprog_core::{BatchError, Dtype, Missing, Output, Table, TableShape};
use condprog_cpu::Isa;
use condprog_table::Tables;
use condprog_table::header::{Header, TensorEntry};
use half::{bf16, f16};
use serde_json::json;

use crate::Outcome;
use crate::arguments::{Backend, Rows};
use crate::backend::{self, AnyDecoder, Cpu, Place};
use crate::error::Error;
use crate::ids;
use crate::measure::Stages;
use crate::npy;
use crate::npy::Ids;
use crate::text::{count, path_text, plural};
use crate::ui::Ui;

/// Values decoded at a time: what a large request takes of memory.
const CHUNK_VALUES: usize = 1 << 24;
/// The tensor of rows in a safetensors file.
const TENSOR: &str = "rows";

pub(crate) fn run(arguments: &Rows, ui: &Ui) -> Result<Outcome, Error> {
    let output = arguments.output.as_deref().map(|path| Ok::<_, Error>((path, Format::of(path)?))).transpose()?;
    let file = Tables::open(&arguments.table)?;
    if let Some((path, _)) = output {
        let inputs = file.files().chain([&*arguments.table]).chain(arguments.ids_file.as_deref());
        NewFile::check(path, inputs, arguments.force.on)?;
    }
    let name = table_name(&file, arguments.tensor.as_deref())?;
    let ids = match &arguments.ids_file {
        Some(path) => ids::read(path)?,
        None => Ids::line(arguments.ids.iter().flat_map(|list| &list.0).copied().collect()),
    };
    let (table, missing) = (file.table(name)?, Missing::from(arguments.missing));
    let shape = TableShape { rows: table.rows, dim: table.dim };
    // The whole request is refused before anything is written.
    if missing == Missing::Error
        && let Some(position) = ids.ids.iter().position(|&id| !names_row(id, shape.rows))
    {
        return Err(BatchError::MissingRow { position, id: ids.ids[position], rows: shape.rows }.into());
    }
    let place = backend::place(arguments.backend, arguments.level.level)?;
    // A processor reads the records of the rows that are asked for; a device takes the table into its memory.
    let (records, segments);
    let decoder = if arguments.backend == Backend::Cpu {
        let isa = arguments.level.level.map_or_else(Isa::detect, Isa::supported)?;
        Box::new(Picking { file: &file, name, cpu: Cpu(isa) })
    } else {
        records = file.load(name)?;
        segments = records.segments();
        place.open(Table::new(&segments)?)?
    };
    // The ids' shape, with the values of a row as the last dimension.
    let sizes: Vec<u64> = ids.shape.iter().copied().chain([shape.dim.into()]).collect();
    let request = Request { decoder: &*decoder, ids: &ids.ids, missing, dtype: arguments.dtype.into(), dim: shape.dim };
    let about = json!({
        "table": path_text(&arguments.table),
        "name": name,
        "backend": place.name(),
        "device": place.device(),
        "dtype": request.dtype.name(),
        "dim": shape.dim,
        "shape": sizes,
        "output": arguments.output.as_ref().map(path_text),
        "ids": ids.ids,
    });
    match output {
        Some((path, format)) => {
            request.save(path, format, &sizes, arguments.force.on)?;
            ui.print("rows", about, || {
                let (rows, dim) = (plural(ids.ids.len() as u64, "row"), count(shape.dim.into()));
                let shape = if sizes.len() == 2 { String::new() } else { format!(", an array of shape {sizes:?}") };
                format!("wrote {}: {rows} of {dim} {} values{shape}", path.display(), request.dtype)
            })?;
        }
        None if ui.is_json() => {
            let mut rows = Vec::new();
            request.each_chunk(|values| {
                rows.extend(values.to_f32().chunks_exact(shape.dim as usize).map(<[f32]>::to_vec));
                Ok(())
            })?;
            let mut about = about;
            about["rows"] = json!(rows);
            ui.print("rows", about, String::new)?;
        }
        None => request.print()?,
    }
    Ok(Outcome::Done)
}

/// The table that was named, or the only one.
fn table_name<'a>(file: &'a Tables, name: Option<&str>) -> Result<&'a str, Error> {
    match (name, file.tables()) {
        (Some(name), _) => Ok(&file.table(name)?.name),
        (None, [only]) => Ok(&only.name),
        (None, several) => {
            let names: Vec<_> = several.iter().map(|table| table.name.as_str()).collect();
            let path = file.path().display();
            Err(Error::Usage(format!("{path} has {} tables, expected --tensor with one of {names:?}", names.len())))
        }
    }
}

/// Formats of rows.
#[derive(Clone, Copy, Debug)]
enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// By what the name ends in.
    fn of(output: &Path) -> Result<Format, Error> {
        match output.extension().and_then(OsStr::to_str) {
            Some("npy") => Ok(Format::Npy),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => {
                let output = output.display();
                Err(Error::Usage(format!("output is {output}, expected a name that ends in .npy or .safetensors")))
            }
        }
    }
}

/// Decodes each request from the records of its rows alone, which are read for it.
struct Picking<'a> {
    file: &'a Tables,
    name: &'a str,
    cpu: Cpu,
}

impl AnyDecoder for Picking<'_> {
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
        let picked = self.file.pick(self.name, ids)?;
        let segments = picked.segments();
        let table = Table::new(&segments)?;
        self.cpu.open(table)?.decode(picked.ids(), missing, output)
    }

    fn decode_in_stages(&self, _: &[i64], _: Output<'_>) -> Result<Option<Stages>, Error> {
        Ok(None)
    }
}

struct Request<'a> {
    decoder: &'a (dyn AnyDecoder + 'a),
    ids: &'a [i64],
    missing: Missing,
    dtype: Dtype,
    dim: u32,
}

/// Values of some rows.
enum Values {
    Bf16(Vec<u16>),
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl Values {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Values::Bf16(bits) | Values::F16(bits) => bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
            Values::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    fn to_f32(&self) -> Vec<f32> {
        match self {
            Values::Bf16(bits) => bits.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect(),
            Values::F16(bits) => bits.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect(),
            Values::F32(values) => values.clone(),
        }
    }
}

impl Request<'_> {
    fn each_chunk(&self, mut take: impl FnMut(Values) -> Result<(), Error>) -> Result<(), Error> {
        for ids in self.ids.chunks((CHUNK_VALUES / self.dim as usize).max(1)) {
            let count = ids.len() * self.dim as usize;
            let decode = |output: Output<'_>| self.decoder.decode(ids, self.missing, output);
            take(match self.dtype {
                Dtype::Bf16 => {
                    let mut bits = vec![0; count];
                    decode(Output::Bf16(&mut bits))?;
                    Values::Bf16(bits)
                }
                Dtype::F16 => {
                    let mut bits = vec![0; count];
                    decode(Output::F16(&mut bits))?;
                    Values::F16(bits)
                }
                Dtype::F32 => {
                    let mut values = vec![0.0; count];
                    decode(Output::F32(&mut values))?;
                    Values::F32(values)
                }
            })?;
        }
        Ok(())
    }

    /// Writes an array of a shape.
    fn save(&self, path: &Path, format: Format, shape: &[u64], force: bool) -> Result<(), Error> {
        let io = |source| Error::Io { action: "write", path: path.into(), source };
        let mut file = BufWriter::new(NewFile::create(path, force)?);
        match format {
            Format::Npy => npy::write_header(&mut file, self.dtype, shape).map_err(io)?,
            Format::Safetensors => file.write_all(&self.safetensors_header(path, shape)?).map_err(io)?,
        }
        self.each_chunk(|values| file.write_all(&values.to_bytes()).map_err(io))?;
        Ok(file.into_inner().map_err(|error| io(error.into_error()))?.finish()?)
    }

    fn safetensors_header(&self, path: &Path, shape: &[u64]) -> Result<Vec<u8>, Error> {
        let end = self.ids.len() as u64 * u64::from(self.dim) * self.dtype.size() as u64;
        let dtype = self.dtype.name().to_uppercase();
        let tensor = TensorEntry { name: TENSOR.into(), dtype, shape: shape.into(), start: 0, end };
        let header = Header::to_bytes(&[], &[tensor], 0);
        header.map_err(|source| condprog_table::Error::Header { path: path.into(), source: Box::new(source) }.into())
    }

    /// One line per row: the id, a tab, and the values.
    fn print(&self) -> Result<(), Error> {
        let mut stdout = BufWriter::new(io::stdout().lock());
        let mut ids = self.ids.iter();
        self.each_chunk(|values| {
            for (row, id) in values.to_f32().chunks_exact(self.dim as usize).zip(&mut ids) {
                let values: Vec<_> = row.iter().map(|value| format!("{value:?}")).collect();
                writeln!(stdout, "{id}\t{}", values.join(" ")).map_err(Error::Stdout)?;
            }
            Ok(())
        })?;
        stdout.flush().map_err(Error::Stdout)
    }
}
