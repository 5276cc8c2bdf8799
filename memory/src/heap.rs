//! What stands in for pages from the system under Miri: a vector.

use std::io;

use bytemuck::Pod;

use crate::bytes_of;

pub(crate) struct Pages<T>(Vec<T>);

impl<T: Pod> Pages<T> {
    pub(crate) fn zeroed(len: usize) -> io::Result<Pages<T>> {
        bytes_of::<T>(len)?;
        let mut items = Vec::new();
        items.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        items.resize(len, T::zeroed());
        Ok(Pages(items))
    }

    pub(crate) fn from_reserve(len: usize) -> io::Result<Pages<T>> {
        Pages::zeroed(len)
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.0
    }

    pub(crate) fn items_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
