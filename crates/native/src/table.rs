//! Tables.

use crate::{
    instance::InstanceError,
    layout::{ELEMENT, ELEMENTS, FunctionReference, Table, Trap},
    types::{TableType, ValueType},
};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
};

/// The most elements that a table has room for.
pub(crate) const TABLE_MOST: u64 = 64 << 10;

/// A table, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHandle {
    pub(crate) table: NonNull<Table>,
    pub(crate) kind: TableType,
    pub(crate) room: u32,
}

/// Elements that a table gets room for.
pub(crate) fn room(kind: &TableType) -> Result<u32, InstanceError> {
    if kind.initial > TABLE_MOST {
        return Err(InstanceError::Table(kind.initial));
    }
    let most = kind.maximum.unwrap_or(TABLE_MOST).min(TABLE_MOST);
    Ok(u32::try_from(most).unwrap_or(u32::MAX))
}

pub(crate) fn fits_table(wanted: &TableType, given: &TableHandle) -> bool {
    wanted.element == given.kind.element
        && within(
            wanted.initial,
            wanted.maximum,
            u64::from(given.length()),
            given.kind.maximum,
        )
}

pub(crate) fn within(least: u64, most: Option<u64>, has: u64, can_have: Option<u64>) -> bool {
    has >= least && most.is_none_or(|most| can_have.is_some_and(|can_have| can_have <= most))
}

impl TableHandle {
    pub(crate) fn length(&self) -> u32 {
        // SAFETY: a table that lives as long as its handles are used.
        unsafe { self.table.as_ref().length }
    }

    /// Makes it as long as it was at first, with null elements.
    pub(crate) fn reset(&self) {
        let length = u32::try_from(self.kind.initial).unwrap_or(u32::MAX);
        // SAFETY: as in `length`; there is room for so many elements.
        unsafe {
            (*self.table.as_ptr()).length = length;
            ptr::write_bytes(self.element(0), 0, length as usize);
        }
    }

    fn element(&self, index: u32) -> *mut FunctionReference {
        let offset = ELEMENTS as usize + index as usize * ELEMENT as usize;
        self.table.as_ptr().wrapping_byte_add(offset).cast()
    }

    /// # Safety
    /// There is room for this element.
    pub(crate) unsafe fn set(&self, index: u32, reference: *const c_void) {
        let functions = self.kind.element == ValueType::Function;
        let null = FunctionReference {
            code: ptr::null(),
            context: ptr::null(),
            signature: 0,
            reference: ptr::null(),
        };
        // SAFETY: see above; a reference to a function is the address of one.
        unsafe {
            let element = if functions && !reference.is_null() {
                reference.cast::<FunctionReference>().read()
            } else {
                FunctionReference { reference, ..null }
            };
            self.element(index).write(element);
        }
    }

    pub(crate) fn grow(&self, count: u32, reference: *const c_void) -> u32 {
        let before = self.length();
        let Some(length) = before.checked_add(count).filter(|length| *length <= self.room) else {
            return u32::MAX;
        };
        for index in before..length {
            // SAFETY: there is room.
            unsafe { self.set(index, reference) };
        }
        // SAFETY: as in `length`.
        unsafe { (*self.table.as_ptr()).length = length };
        before
    }

    pub(crate) fn fill(&self, from: u32, reference: *const c_void, count: u32) -> Result<(), Trap> {
        if u64::from(from) + u64::from(count) > u64::from(self.length()) {
            return Err(Trap::TableOutOfBounds);
        }
        for index in from..from + count {
            // SAFETY: an element that it has.
            unsafe { self.set(index, reference) };
        }
        Ok(())
    }

    pub(crate) fn copy(&self, from_table: &Self, to: u32, from: u32, count: u32) -> Result<(), Trap> {
        let ends =
            |table: &Self, begin: u32| u64::from(begin) + u64::from(count) <= u64::from(table.length());
        if !ends(self, to) || !ends(from_table, from) {
            return Err(Trap::TableOutOfBounds);
        }
        // SAFETY: elements that they have.
        unsafe { ptr::copy(from_table.element(from), self.element(to), count as usize) };
        Ok(())
    }
}

const _: () = assert!(size_of::<FunctionReference>() == ELEMENT as usize);
