//! What a node tells its backend: for each link one packet, with the backend's bell; and for each line one, with the backend's end.

use contract::{AwsGrant, Caller, FunctionId, Grant, S3Grant, VersionNumber};
use rustix::{
    io::{Errno, IoSlice, IoSliceMut, Result, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    mem::MaybeUninit,
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Bytes of the largest packet.
const LARGEST: usize = 128 << 10;

/// What comes with a packet.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Open {
    /// The bell of a link.
    Link(Attach),
    /// A line. What is asked there is said there.
    Line,
}

/// A link to be made.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attach {
    /// To this service.
    pub(crate) service: String,
    /// For a sandbox of this function,
    pub(crate) function: FunctionId,
    /// of this version,
    pub(crate) version: NonZeroU32,
    /// which may use so many bytes of memory.
    pub(crate) memory: u64,
    /// Which sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<u64>,
    /// What was granted.
    pub(crate) s3: Vec<S3Grant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aws: Vec<AwsGrant>,
    /// Where in which trace its calls are: `traceparent` and `tracestate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<(String, Option<String>)>,
}

impl Attach {
    pub(crate) fn new(service: &str, grant: &Grant, caller: &Caller) -> Self {
        let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).ok();
        let parent = caller.traceparent.as_ref().and_then(text);
        Self {
            service: service.to_owned(),
            function: grant.function.clone(),
            version: grant.version.0,
            memory: grant.limits.memory.0,
            sandbox: caller.sandbox,
            s3: grant.s3.clone(),
            aws: grant.aws.clone(),
            trace: parent.map(|parent| (parent, caller.tracestate.as_ref().and_then(text))),
        }
    }

    /// As a service is to be bound to it.
    pub(crate) fn grant(&self) -> Grant {
        Grant {
            version: VersionNumber(self.version),
            s3: self.s3.clone(),
            aws: self.aws.clone(),
            ..Grant::nothing(self.function.clone())
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        let bytes = |text: &String| text.clone().into();
        Caller {
            sandbox: self.sandbox,
            // Whose link it is, the sandbox knows.
            process: 0,
            traceparent: self.trace.as_ref().map(|(parent, _)| bytes(parent)),
            tracestate: self
                .trace
                .as_ref()
                .and_then(|(_, state)| state.as_ref().map(bytes)),
            request: None,
        }
    }
}

/// Never waits: where the backend is far behind, that is `EAGAIN`.
pub(crate) fn send(socket: impl AsFd, open: &Open, bell: BorrowedFd<'_>) -> Result<()> {
    let packet = serde_json::to_vec(open).map_err(|_| Errno::INVAL)?;
    let bells = [bell];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&bells));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&packet)], &mut ancillary, flags))?;
    Ok(())
}

/// The next one, `None` once the node has gone. Never waits.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut packet = vec![0; LARGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = retry_on_intr(|| {
        recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut packet)],
            &mut ancillary,
            flags,
        )
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    packet.truncate(received.bytes);
    let bell = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(Some((packet, bell)))
}
