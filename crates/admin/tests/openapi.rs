//! The description in the repository is the one that is served.

use std::{fs, path::Path};

#[test]
fn the_published_description_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let current = serde_json::to_string_pretty(&admin::openapi()).unwrap() + "\n";
    if std::env::var_os("MILLPOND_REGENERATE").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == current,
        "docs/openapi.json is stale: run `MILLPOND_REGENERATE=1 cargo test --release -p millpond-admin --test openapi`"
    );
}
