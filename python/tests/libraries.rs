//! What the extension module does with libraries, which it does without an interpreter: its tests are beside it, and run here, for it cannot
//! be linked to a program.

#[path = "../native/src/libraries.rs"]
mod libraries;
