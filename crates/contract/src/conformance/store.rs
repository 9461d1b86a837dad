//! The suite of [`crate::Store`].
