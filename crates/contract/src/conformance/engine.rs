//! The suite of [`crate::Engine`], [`crate::Image`] and [`crate::Sandbox`].
