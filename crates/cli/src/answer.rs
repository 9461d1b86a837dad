//! A function's answer, on its way to standard output or a file.

use crate::{failure::Failure, output::Output};
use serde_json::{Map, Value, json};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};
use ureq::{Body, http::Response};

/// Writes the body as it is, to a file if one is named.
pub(crate) fn write(
    response: &mut Response<Body>,
    file: Option<&Path>,
    output: Output,
) -> Result<(), Failure> {
    let mut file = match file {
        None => None,
        Some(path) => Some((
            path,
            File::create(path).map_err(|error| cannot_write(path, &error))?,
        )),
    };
    let mut reader = response.body_mut().as_reader();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = reader.read(&mut buffer).map_err(broke_off)?;
        if n == 0 {
            return Ok(());
        }
        match &mut file {
            Some((path, file)) => file
                .write_all(&buffer[..n])
                .map_err(|error| cannot_write(path, &error))?,
            None => output.bytes(&buffer[..n])?,
        }
    }
}

/// The whole answer as one document; the body goes to a file if one is named. A body that is not UTF-8 is left to files.
pub(crate) fn document(
    response: &mut Response<Body>,
    status: u16,
    file: Option<&Path>,
) -> Result<Value, Failure> {
    let mut bytes = Vec::new();
    response
        .body_mut()
        .as_reader()
        .read_to_end(&mut bytes)
        .map_err(broke_off)?;
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(value.into());
        }
    }
    let mut answer = json!({ "status": status, "headers": headers, "length": bytes.len() });
    match file {
        Some(path) => fs::write(path, &bytes).map_err(|error| cannot_write(path, &error))?,
        None => answer["body"] = String::from_utf8(bytes).map_or(Value::Null, Value::String),
    }
    Ok(answer)
}

fn broke_off(error: io::Error) -> Failure {
    Failure::local(
        format!("the answer broke off: {error}"),
        "the function may have failed while it wrote; see `millpond logs`",
    )
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::local(format!("cannot write {}: {error}", path.display()), "")
}
