//! Jobs, from checkpoints to table files and back: one program, as linking one for each file takes longer than most of
//! them run.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod checkpoint;
mod companions;
mod cut;
mod disk_full;
mod families;
mod faults;
mod inputs;
mod joined_scales;
mod mapping;
mod mismatch;
mod offsets;
mod parts;
mod restore;
mod restore_scales;
mod resume;
mod resume_files;
mod rewrite;
mod scales;
mod sharded;
mod traps;
