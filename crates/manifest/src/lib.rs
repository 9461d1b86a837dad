//! `millpond.toml`: what an application is made of, read strictly and explained well.
#![forbid(unsafe_code)]
mod diagnostic;
mod model;
mod schema;
pub use diagnostic::Diagnostic;
pub use model::{
    Application, Build, DEFAULT_CONTENT_TYPE, Engine, Function, Grants, HttpGrant, HttpTrigger, Manifest, Protocol,
    S3Action, S3Grant, Triggers,
};
pub use schema::schema;

#[cfg(test)]
mod tests {
    #[test]
    fn p() { println!("{}", serde_json::to_string_pretty(crate::schema()).unwrap()); }
}
