//! Bytes between a client and a gateway, as they are.
//!
//! The gateway decides when a connection is over: it knows HTTP and has the timeouts. What is left to do here is to notice a
//! client that does not take what it is sent, since the gateway only sees that its own bytes were taken.

use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{UnixStream, unix},
    time::timeout,
};

/// Bytes that travel together: what a TLS record holds.
const PIECE: usize = 16 << 10;

/// How long the ends may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The client, to take a piece.
    pub(crate) write: Duration,
    /// The client, to read the last piece and close.
    pub(crate) linger: Duration,
}

/// Ends when both directions have ended, or one of the two is gone.
pub(crate) async fn pipe<C>(client: C, gateway: UnixStream, patience: Patience)
where
    C: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_gateway, to_gateway) = gateway.into_split();
    let up = up(from_client, to_gateway);
    let down = down(from_gateway, to_client, patience.write);
    tokio::pin!(up, down);
    tokio::select! {
        sent = &mut up => {
            // The client will send nothing more; it may still be owed an answer. One that is gone is owed nothing, and
            // the gateway sees that it is gone.
            if sent.is_ok() {
                let _ = down.await;
            }
        }
        answered = &mut down => {
            if answered.is_ok() {
                // What the client still sends is taken off its hands, lest a reset overtakes the answer.
                let _ = timeout(patience.linger, up).await;
            }
        }
    }
}

async fn up(mut client: impl AsyncRead + Unpin, mut gateway: unix::OwnedWriteHalf) -> io::Result<()> {
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        match client.read_buf(&mut piece).await {
            Ok(0) => break,
            Ok(_) => {
                if gateway.write_all(&piece).await.is_err() {
                    // It has closed. What it said before is still to be read.
                    return Ok(());
                }
            }
            // Without the alert that should announce it (RFC 8446, section 6.1). HTTP's own framing tells what is complete.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    // It fails only if the gateway has closed.
    let _ = gateway.shutdown().await;
    Ok(())
}

async fn down(
    gateway: unix::OwnedReadHalf,
    mut client: impl AsyncWrite + Unpin,
    patience: Duration,
) -> io::Result<()> {
    loop {
        // A connection that is idle holds no buffer for answers.
        gateway.readable().await?;
        let mut piece = Vec::with_capacity(PIECE);
        match gateway.try_read_buf(&mut piece) {
            Ok(1..) => {
                timeout(patience, async {
                    client.write_all(&piece).await?;
                    client.flush().await
                })
                .await??;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A socket pair's other end that closes with something unread says so; it is an end all the same.
            Ok(0) | Err(_) => return timeout(patience, client.shutdown()).await?,
        }
    }
}
