//! `condprog rows`

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use condprog_core::decoder::names_row;
use condprog_core::{BatchError, Dtype, Missing, Output, Table, TableShape};
use condprog_cpu::Level;
use condprog_table::TableFile;
use half::{bf16, f16};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::Outcome;
use crate::arguments::{Backend, Rows};
use crate::backend::{self, AnyDecoder, Cpu, Place};
use crate::error::Error;
use crate::measure::Stages;
use crate::text::{count, path_text, plural};
use crate::ui::Ui;
use crate::{ids, npy};

/// Values decoded at a time: what a large request takes of memory.
const CHUNK_VALUES: usize = 1 << 24;

pub(crate) fn run(arguments: &Rows, ui: &Ui) -> Result<Outcome, Error> {
    if let Some(output) = arguments.output.as_ref().filter(|output| output.extension().is_none_or(|e| e != "npy")) {
        return Err(Error::Usage(format!("output is {}, expected a name that ends in .npy", output.display())));
    }
    let file = TableFile::open(&arguments.table)?;
    let name = table_name(&file, arguments.tensor.as_deref())?;
    let ids = match &arguments.ids_file {
        Some(path) => ids::read(path)?,
        None => arguments.ids.clone(),
    };
    let (table, missing) = (file.table(name)?, Missing::from(arguments.missing));
    let shape = TableShape { rows: table.rows, dim: table.dim };
    // The whole request is refused before anything is written.
    if missing == Missing::Error
        && let Some(position) = ids.iter().position(|&id| !names_row(id, shape.rows))
    {
        return Err(BatchError::MissingRow { position, id: ids[position], rows: shape.rows }.into());
    }
    let place = backend::place(arguments.backend, arguments.level.level)?;
    // A processor reads the records of the rows that are asked for; a device takes the table into its memory.
    let (records, segments);
    let decoder = if arguments.backend == Backend::Cpu {
        let level = arguments.level.level.map_or_else(Level::detect, Level::supported)?;
        Box::new(Picking { file: &file, name, cpu: Cpu(level) })
    } else {
        records = file.load(name)?;
        segments = records.segments();
        place.open(Table::new(&segments).expect("checked when the file was opened"))?
    };
    let request = Request { decoder: &*decoder, ids: &ids, missing, dtype: arguments.dtype.into(), dim: shape.dim };
    let about = json!({
        "table": path_text(&arguments.table),
        "name": name,
        "backend": place.name(),
        "device": place.device(),
        "dtype": request.dtype.name(),
        "dim": shape.dim,
        "output": arguments.output.as_ref().map(path_text),
        "ids": ids,
    });
    match &arguments.output {
        Some(output) => {
            request.save(output, arguments.force.on)?;
            ui.print("rows", about, || {
                let (rows, dim) = (plural(ids.len() as u64, "row"), count(shape.dim.into()));
                format!("wrote {}: {rows} of {dim} {} values", output.display(), request.dtype)
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
fn table_name<'a>(file: &'a TableFile, name: Option<&str>) -> Result<&'a str, Error> {
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

/// Decodes each request from the records of its rows alone, which are read for it.
struct Picking<'a> {
    file: &'a TableFile,
    name: &'a str,
    cpu: Cpu,
}

impl AnyDecoder for Picking<'_> {
    fn decode(&self, ids: &[i64], missing: Missing, output: Output<'_>) -> Result<(), Error> {
        let picked = self.file.pick(self.name, ids)?;
        let segments = picked.segments();
        let table = Table::new(&segments).expect("checked when the file was opened");
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

    /// Writes an array under a temporary name, and gives it its own when it is whole.
    fn save(&self, output: &Path, force: bool) -> Result<(), Error> {
        let io = |source| Error::Io { action: "write", path: output.into(), source };
        let exists = || Error::Table(condprog_table::Error::OutputExists { path: output.into() });
        if !force && output.try_exists().map_err(io)? {
            return Err(exists());
        }
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Readable as any new file is, which a temporary file otherwise is not.
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = BufWriter::new(builder.tempfile_in(folder).map_err(io)?);
        npy::write_header(&mut file, self.dtype, self.ids.len(), self.dim).map_err(io)?;
        self.each_chunk(|values| file.write_all(&values.to_bytes()).map_err(io))?;
        let file: NamedTempFile = file.into_inner().map_err(|error| io(error.into_error()))?;
        file.as_file().sync_all().map_err(io)?;
        let kept = if force { file.persist(output) } else { file.persist_noclobber(output) };
        match kept {
            // The name lasts when its folder does.
            Ok(_) if cfg!(unix) => fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io),
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
            Err(error) => Err(io(error.error)),
        }
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
