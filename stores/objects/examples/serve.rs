//! Serves S3 from a folder until its input ends: `serve FOLDER ADDRESS ACCESS SECRET`.

use std::path::Path;
use store_objects::{Key, Objects, Options};
use tokio::{io::AsyncReadExt, net::TcpListener};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, address, access, secret] = &*arguments else {
        return Err("usage: serve FOLDER ADDRESS ACCESS SECRET".into());
    };
    let objects = Objects::open(Path::new(folder), Options::default())?;
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    let key = Key {
        access: access.clone(),
        secret: secret.clone(),
    };
    let end = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    objects.serve(listener, [key], end).await?;
    Ok(())
}
