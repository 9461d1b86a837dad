//! The backend's end.

use super::{Asked, Coming, Ear, Granted, LARGEST, Said, decoded, encoded, end, send, send_body};
use crate::call::{ReplyHead, read};
use bytes::Bytes;
use contract::{Body, Call, CallError, Caller, Reply, Service, Session, Trailers};
use std::{io, os::fd::OwnedFd, sync::Arc};
use tokio::{io::Interest, net::UnixStream};

/// Carries one call, until its reply has been sent or nobody waits for it.
pub(crate) async fn serve(socket: OwnedFd, services: Arc<[Arc<dyn Service>]>) {
    let carried = async {
        let socket = end(socket)?;
        tokio::select! {
            // The node closes its end to give the call up, whatever it has said before that is not read yet.
            gone = socket.ready(Interest::PRIORITY) => gone.map(|_| ()),
            carried = carry(&socket, &services) => carried,
        }
    };
    if let Err(error) = carried.await {
        tracing::debug!(%error, "a call of the node's breaks off");
    }
}

async fn carry(socket: &Arc<UnixStream>, services: &[Arc<dyn Service>]) -> io::Result<()> {
    let mut ear = Ear::new(socket.clone());
    let (Some(Said::Grant(granted)), Some(Said::Call(asked))) = (ear.next().await?, ear.next().await?) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (granted, asked): (Granted, Asked) = (decoded(&granted)?, decoded(&asked)?);
    let mut words = Vec::new();
    let Some(session) = bind(services, granted) else {
        Said::Failed(CallError::Denied("this service".to_owned())).write(&mut words);
        return send(socket, &words).await;
    };
    if asked.waits {
        Said::Begun.write(&mut words);
        send(socket, &words).await?;
        words.clear();
    }
    let body = match asked.has_body {
        true => Body::Stream(Box::new(Coming::new(ear))),
        false => Body::Whole(Bytes::new()),
    };
    let reply = session.call(Call {
        operation: asked.operation,
        target: asked.target,
        parameters: read(asked.parameters),
        body,
        // How long it may take, the node knows, and gives it up.
        patience: None,
        pause: None,
        caller: Caller::default(),
    });
    match reply.await {
        Ok(Reply { head, body }) => {
            let head = encoded(&ReplyHead::from(head));
            if head.len() > LARGEST {
                let large = CallError::Broken("the reply's head is too large".to_owned());
                Said::Failed(large).write(&mut words);
                return send(socket, &words).await;
            }
            Said::Head(head.into()).write(&mut words);
            match body {
                Body::Whole(bytes) => {
                    Said::Piece(bytes).write(&mut words);
                    Said::End(Trailers::new()).write(&mut words);
                    send(socket, &words).await
                }
                Body::Stream(mut stream) => send_body(socket, words, None, &mut *stream).await,
            }
        }
        Err(error) => {
            Said::Failed(error).write(&mut words);
            send(socket, &words).await
        }
    }
}

fn bind(services: &[Arc<dyn Service>], granted: Granted) -> Option<Arc<dyn Session>> {
    let service = services
        .iter()
        .find(|service| service.name() == granted.service)?;
    service.bind(&granted.grant())
}
