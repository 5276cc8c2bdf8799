//! Files that callers write under this crate's rules.

use std::io::{self, Write};
use std::path::Path;

use super::{Temporary, folder_of, refuse_existing, refuse_same, sweep};
use crate::error::Error;

/// A file that gets its name when it is complete and on disk. Until then it is a temporary beside it, which goes with
/// this value; what a killed program has left, the next one removes.
#[derive(Debug)]
pub struct NewFile {
    temporary: Option<Temporary>,
    force: bool,
}

impl NewFile {
    /// Refuses an output that is one of the inputs, under whatever name, or is there and no regular file, forced or not;
    /// without force, whatever is there.
    ///
    /// # Errors
    /// [`Error::SameFile`], [`Error::OutputNotAFile`], [`Error::OutputExists`], [`Error::File`].
    pub fn check<'a>(
        output: impl AsRef<Path>,
        inputs: impl IntoIterator<Item = &'a Path>,
        force: bool,
    ) -> Result<(), Error> {
        inputs.into_iter().try_for_each(|input| refuse_same(input, output.as_ref()))?;
        refuse_existing(output.as_ref(), force)
    }

    /// Creates the temporary.
    ///
    /// # Errors
    /// As [`NewFile::check`].
    pub fn create(output: impl AsRef<Path>, force: bool) -> Result<NewFile, Error> {
        let output = output.as_ref();
        sweep(folder_of(output));
        Ok(NewFile { temporary: Some(Temporary::create(output, force)?), force })
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::OutputExists`] when something has come there since.
    pub fn finish(mut self) -> Result<(), Error> {
        self.temporary.take().map_or(Ok(()), |temporary| temporary.finish(self.force))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(temporary) = &mut self.temporary else { return Ok(0) };
        match temporary.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(Error::File(condprog_table::Error::Io { source, .. })) => Err(source),
            Err(other) => Err(io::Error::other(other)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            temporary.discard();
        }
    }
}
