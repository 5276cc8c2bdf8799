//! The process that runs the kernels; `cpp/main.cpp` describes the messages.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use condprog_core::{Layout, Table};

use crate::build::Program;
use crate::error::HostError;

/// A message under construction.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn u32(&mut self, value: u32) -> &mut Message {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Message {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Message {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A running program. Ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl Process {
    pub(crate) fn start(program: &Program) -> Result<Process, HostError> {
        let mut child =
            Command::new(program.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| HostError::Process("it has no output".into()))?;
        Ok(Process { child, input, output })
    }

    /// Sends a table, each segment's records `skew(segment)` bytes after a multiple of 16.
    pub(crate) fn table(&mut self, table: &Table<'_>, skew: impl Fn(usize) -> u32) -> Result<(), HostError> {
        let segments = table.segments();
        self.send(Message::default().u32(0).u32(segments.len() as u32))?;
        let mut first = 0;
        for (index, segment) in segments.iter().enumerate() {
            let bytes = segment.records.len() as u64;
            self.segment(first, segment.layout, skew(index), bytes, 0, segment.records)?;
            first += segment.rows;
        }
        Ok(())
    }

    /// Sends one segment of `bytes` bytes, of which only those from `at` on are given.
    pub(crate) fn segment(
        &mut self,
        first: u64,
        layout: Layout,
        skew: u32,
        bytes: u64,
        at: u64,
        given: &[u8],
    ) -> Result<(), HostError> {
        let mut message = Message::default();
        message.u64(first).u32(layout.record_bytes() as u32).u32(layout.rate().quarters()).u32(skew);
        message.u64(bytes).u64(at).u64(given.len() as u64);
        self.send(&message)?;
        self.write(given)
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), HostError> {
        self.write(&message.0)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        let written = self.input.as_mut().is_some_and(|input| input.write_all(bytes).is_ok());
        if written { Ok(()) } else { Err(self.end()) }
    }

    /// Receives `bytes` bytes.
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<Vec<u8>, HostError> {
        let mut buffer = vec![0; bytes];
        match self.output.read_exact(&mut buffer) {
            Ok(()) => Ok(buffer),
            Err(_) => Err(self.end()),
        }
    }

    /// What the process said at its end.
    fn end(&mut self) -> HostError {
        self.input = None;
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take()
            && let Err(error) = stderr.read_to_string(&mut said)
        {
            said = error.to_string();
        }
        match self.child.wait() {
            Ok(status) => HostError::Process(format!("{status}; {}", said.trim())),
            Err(error) => HostError::Io(error),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closing its input ends it; a process that already ended is only collected.
        self.input = None;
        let _ = self.child.wait();
    }
}
