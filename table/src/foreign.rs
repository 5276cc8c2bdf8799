//! Files of other programs that are given in place of safetensors files, recognised by their first bytes.

use std::fmt;

/// Bytes of a file's start that are enough to recognise it.
pub(crate) const FIRST_BYTES: usize = 64;

/// What a file is that is not a safetensors file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForeignFile {
    /// A Git LFS pointer.
    LfsPointer,
    /// A model for llama.cpp.
    Gguf,
    /// PyTorch's own format, a zip archive.
    Zip,
    /// PyTorch's old format, or any other pickle.
    Pickle,
    /// A web page, as servers send in place of a file.
    Html,
    /// A NumPy array.
    Npy,
    /// A JSON text, such as an index.
    Json,
    /// An archive or a compressed file.
    Compressed,
    /// Zeros: a download that was cut short in a file that had its full length from the start.
    Zeros,
    /// An unfinished output of this program.
    Partial,
}

impl ForeignFile {
    /// Recognises a file by its first bytes.
    pub fn recognise(first: &[u8]) -> Option<ForeignFile> {
        use ForeignFile::*;
        const STARTS: [(&[u8], ForeignFile); 13] = [
            (b"version https://git-lfs", LfsPointer),
            (b"GGUF", Gguf),
            (b"PK\x03\x04", Zip),
            // Protocols 2 to 5 of Python's pickle, which old PyTorch files start with.
            (b"\x80\x02", Pickle),
            (b"\x80\x03", Pickle),
            (b"\x80\x04", Pickle),
            (b"\x80\x05", Pickle),
            (b"\x93NUMPY", Npy),
            (b"\x1f\x8b", Compressed),
            (b"\x28\xb5\x2f\xfd", Compressed),
            (b"\xfd7zXZ", Compressed),
            (b"BZh", Compressed),
            (b"7z\xbc\xaf\x27\x1c", Compressed),
        ];
        if let Some((_, kind)) = STARTS.iter().find(|(start, _)| first.starts_with(start)) {
            return Some(*kind);
        }
        // No safetensors file has a header of no bytes.
        if first.len() >= 16 && first.iter().all(|&byte| byte == 0) {
            return Some(Zeros);
        }
        let text = first.trim_ascii_start();
        let tag = |tag: &[u8]| text.len() >= tag.len() && text[..tag.len()].eq_ignore_ascii_case(tag);
        match text {
            _ if tag(b"<!doctype") || tag(b"<html") || tag(b"<head") || tag(b"<?xml") => Some(Html),
            [b'{' | b'[', ..] => Some(Json),
            _ => None,
        }
    }
}

impl fmt::Display for ForeignFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ForeignFile::LfsPointer => "is a Git LFS pointer, not the file it stands for: `git lfs pull` fetches that",
            ForeignFile::Gguf => {
                "is a GGUF file, expected safetensors: take the checkpoint that it was converted from"
            }
            ForeignFile::Zip => {
                "is a zip archive, as PyTorch's .pt and .bin files are, expected safetensors: load it in Python and save \
                 its tensors with safetensors.torch.save_file"
            }
            ForeignFile::Pickle => {
                "is a Python pickle, as PyTorch's old .pt and .bin files are, expected safetensors: load it in Python, \
                 if you trust it, and save its tensors with safetensors.torch.save_file"
            }
            ForeignFile::Html => "is a web page, not the file that was asked for: download it again, with a login if it needs one",
            ForeignFile::Npy => {
                "is a NumPy array, expected safetensors: load it in Python and save it with safetensors.numpy.save_file"
            }
            ForeignFile::Json => {
                "is a JSON text, expected safetensors: an index has a name that ends in .safetensors.index.json"
            }
            ForeignFile::Compressed => "is a compressed file, expected safetensors: unpack it first",
            ForeignFile::Zeros => "starts with zeros, expected a header: its download was cut short, so download it again",
            ForeignFile::Partial => {
                "is an unfinished output of condprog: the command that made it resumes when it is run again"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_their_first_bytes() {
        let cases: [(&[u8], Option<ForeignFile>); 12] = [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:", Some(ForeignFile::LfsPointer)),
            (b"version 1 of something else", None),
            (b"\r\n  <!DOCTYPE html><html>", Some(ForeignFile::Html)),
            (b"<HTML>", Some(ForeignFile::Html)),
            (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", Some(ForeignFile::Pickle)),
            (b"\x80\x01\0\0\0\0\0\0{}", None),
            (b"{\"weight_map\": {}}", Some(ForeignFile::Json)),
            (&[0; 64], Some(ForeignFile::Zeros)),
            (&[0; 8], None),
            (b"", None),
            (b"# A text", None),
            (b"\x08\0\0\0\0\0\0\0{\"a\":{", None),
        ];
        for (first, kind) in cases {
            assert_eq!(ForeignFile::recognise(first), kind, "{first:?}");
        }
    }
}
