//! The process that does I/O for sandboxes: it has the credentials, and they have a channel to it.
//!
//! ```text
//! node ──starts, and starts again──▶ backend ──▶ services ──▶ S3, …
//!   │ ──────────a bell, a grant────────▶ │
//!   └──the other bell──▶ sandbox ◀─channel
//! ```
//!
//! Who wants a service in a sandbox's process asks the node for a link ([`contract::Session::attach`]). The node makes a pair of [bells](ring::Bell), keeps neither, and
//! sends one of them to the backend with what was granted. From there on the two speak without the node. The sandbox's bell *is* its token: it opens
//! what this version was granted and nothing else, nobody else has it, and it ends with the process that has it.
//!
//! Where sandboxes lie in the node itself, the node makes their calls for them: over links of its own to services that serve links, or each over a
//! [line](Lines).
//!
//! The backend keeps nothing that must outlive it. If it ends, the node starts another: each sandbox hears its bell fall silent, asks for a new link, and calls
//! again what is safe to call again; so does the node. Requests for links and lines wait in the node's socket meanwhile.

#![forbid(unsafe_code)]

mod call;
mod client;
mod control;
mod limits;
mod line;
mod link;
mod row;
mod server;
mod supervisor;

pub use limits::Limits;
pub use line::Lines;
pub use server::{Links, serve};
pub use supervisor::{Backend, Proxy, TUNABLES_SAID};
