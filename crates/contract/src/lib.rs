//! The nouns that cross seams, and the seam traits; no behaviour of its own.
//!
//! Every other crate speaks through these types, so this crate knows none of them. It holds
//!
//! - the names of things ([`Name`], [`FunctionId`], [`RequestId`], [`Digest`], [`ByteSize`]),
//! - what a request looks like on its way to a sandbox ([`Head`], [`Input`], [`ResponseSink`]),
//! - what a sandbox may do ([`Grant`], [`Limits`]) and how it ended ([`Step`], [`Usage`], [`Fault`]),
//! - the seams: [`Engine`] / [`Image`] / [`Sandbox`], [`Service`] / [`Session`], [`Policy`], [`Store`],
//!   [`Log`].
//!
//! A seam's contract is prose on its trait, and a conformance suite in `conformance` (a feature of
//! that name) that every implementation runs unchanged.

#![forbid(unsafe_code)]

mod engine;
mod fault;
mod grant;
mod head;
mod log;
mod names;
mod policy;
mod problem;
mod request;
mod secret;
mod service;
mod store;
/// Quantities as people write them, and their serde form.
pub mod units;

/// One suite for each seam; an implementation's tests call it with a fresh instance. A dev-dependency asks for the
/// feature `conformance`.
#[cfg(feature = "conformance")]
pub mod conformance;

pub use engine::{
    Artefact, Code, CodeKind, CoreId, Demand, Engine, Image, PrepareError, Sandbox, SpawnError, Step, Until,
    Usage,
};
pub use fault::Fault;
pub use grant::{
    AWS_SERVICES, AwsGrant, Claim, Demanded, Grant, HttpGrant, Limits, Protocol, S3Action, S3Grant,
    content_type, is_own_address, is_reserved_variable, pattern_matches,
};
pub use head::{Head, HeadBuilder, Origin};
pub use log::{Appended, Extent, Log, LogError, OnAppended, Position, Record, Tail};
pub use names::{
    ApplicationId, Digest, FunctionId, FunctionRef, Name, NameError, Qualifier, RequestId, VersionNumber,
};
pub use policy::{Admission, Job, Load, Party, Policy, Quota, Refusal, Stop, Ticket, Time, Turn};
pub use problem::Problem;
pub use request::{Body, BodyError, BodyStream, Input, ResponseHead, ResponseSink, Trailers};
pub use secret::{Piece, SecretName, Template, TemplateError};
pub use service::{
    Attachment, Call, CallError, Caller, Calling, Reply, Service, Services, Session, Standing,
};
pub use store::{Change, Entry, Expect, Revision, Store, StoreError, Watch};
pub use units::{ByteSize, UnitError, format_duration, parse_duration};
