//! What every libc links and no sandbox has: terminals, files, sockets.
//!
//! There is nothing to open: no terminal, no directory, and every way to a socket answers `access-denied`. So no handle of
//! these types ever exists, and what would work on one is never reached; it is linked without its type.

use super::{functions, host::Host, table::Object};
use wasmtime::{
    Error, Result,
    component::{Linker, Resource, ResourceType, Val},
};

/// The mark of a resource type: what a guest asks for sockets.
struct Network;

/// An interface of nothing.
struct Absent {
    name: &'static str,
    /// Its resource types, each with its methods.
    resources: &'static [(&'static str, &'static [&'static str])],
    /// Its functions that can be called, and what they answer.
    functions: &'static [(&'static str, Answer)],
}

#[derive(Clone, Copy)]
enum Answer {
    /// An option that is empty.
    None,
    /// A list that is empty.
    Empty,
    /// `access-denied`.
    Denied,
}

impl Answer {
    fn value(self) -> Val {
        match self {
            Self::None => Val::Option(None),
            Self::Empty => Val::List(Vec::new()),
            Self::Denied => Val::Result(Err(Some(Box::new(Val::Enum("access-denied".to_owned()))))),
        }
    }
}

const ABSENT: [Absent; 12] = [
    Absent {
        name: "wasi:cli/terminal-input@0.2.0",
        resources: &[("terminal-input", &[])],
        functions: &[],
    },
    Absent {
        name: "wasi:cli/terminal-output@0.2.0",
        resources: &[("terminal-output", &[])],
        functions: &[],
    },
    Absent {
        name: "wasi:cli/terminal-stdin@0.2.0",
        resources: &[],
        functions: &[("get-terminal-stdin", Answer::None)],
    },
    Absent {
        name: "wasi:cli/terminal-stdout@0.2.0",
        resources: &[],
        functions: &[("get-terminal-stdout", Answer::None)],
    },
    Absent {
        name: "wasi:cli/terminal-stderr@0.2.0",
        resources: &[],
        functions: &[("get-terminal-stderr", Answer::None)],
    },
    Absent {
        name: "wasi:filesystem/types@0.2.0",
        resources: &[
            (
                "descriptor",
                &[
                    "read-via-stream",
                    "write-via-stream",
                    "append-via-stream",
                    "advise",
                    "sync-data",
                    "get-flags",
                    "get-type",
                    "set-size",
                    "set-times",
                    "read",
                    "write",
                    "read-directory",
                    "sync",
                    "create-directory-at",
                    "stat",
                    "stat-at",
                    "set-times-at",
                    "link-at",
                    "open-at",
                    "readlink-at",
                    "remove-directory-at",
                    "rename-at",
                    "symlink-at",
                    "unlink-file-at",
                    "is-same-object",
                    "metadata-hash",
                    "metadata-hash-at",
                ],
            ),
            ("directory-entry-stream", &["read-directory-entry"]),
        ],
        functions: &[("filesystem-error-code", Answer::None)],
    },
    Absent {
        name: "wasi:filesystem/preopens@0.2.0",
        resources: &[],
        functions: &[("get-directories", Answer::Empty)],
    },
    Absent {
        name: "wasi:sockets/tcp@0.2.0",
        resources: &[(
            "tcp-socket",
            &[
                "start-bind",
                "finish-bind",
                "start-connect",
                "finish-connect",
                "start-listen",
                "finish-listen",
                "accept",
                "local-address",
                "remote-address",
                "is-listening",
                "address-family",
                "set-listen-backlog-size",
                "keep-alive-enabled",
                "set-keep-alive-enabled",
                "keep-alive-idle-time",
                "set-keep-alive-idle-time",
                "keep-alive-interval",
                "set-keep-alive-interval",
                "keep-alive-count",
                "set-keep-alive-count",
                "hop-limit",
                "set-hop-limit",
                "receive-buffer-size",
                "set-receive-buffer-size",
                "send-buffer-size",
                "set-send-buffer-size",
                "subscribe",
                "shutdown",
            ],
        )],
        functions: &[],
    },
    Absent {
        name: "wasi:sockets/tcp-create-socket@0.2.0",
        resources: &[],
        functions: &[("create-tcp-socket", Answer::Denied)],
    },
    Absent {
        name: "wasi:sockets/udp@0.2.0",
        resources: &[
            (
                "udp-socket",
                &[
                    "start-bind",
                    "finish-bind",
                    "stream",
                    "local-address",
                    "remote-address",
                    "address-family",
                    "unicast-hop-limit",
                    "set-unicast-hop-limit",
                    "receive-buffer-size",
                    "set-receive-buffer-size",
                    "send-buffer-size",
                    "set-send-buffer-size",
                    "subscribe",
                ],
            ),
            ("incoming-datagram-stream", &["receive", "subscribe"]),
            ("outgoing-datagram-stream", &["check-send", "send", "subscribe"]),
        ],
        functions: &[],
    },
    Absent {
        name: "wasi:sockets/udp-create-socket@0.2.0",
        resources: &[],
        functions: &[("create-udp-socket", Answer::Denied)],
    },
    Absent {
        name: "wasi:sockets/ip-name-lookup@0.2.0",
        resources: &[("resolve-address-stream", &["resolve-next-address", "subscribe"])],
        functions: &[("resolve-addresses", Answer::Denied)],
    },
];

pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    let mut number = 0;
    for absent in &ABSENT {
        let mut instance = linker.instance(absent.name)?;
        for (resource, methods) in absent.resources {
            number += 1;
            instance.resource(resource, ResourceType::host_dynamic(number), |_, _| Ok(()))?;
            for method in *methods {
                instance.func_new(&format!("[method]{resource}.{method}"), |_, _, _, _| {
                    Err(Error::msg("it has no such handle"))
                })?;
            }
        }
        for (function, answer) in absent.functions {
            instance.func_new(function, |_, _, _, results| {
                results.iter_mut().for_each(|result| *result = answer.value());
                Ok(())
            })?;
        }
    }

    let mut network = linker.instance("wasi:sockets/network@0.2.0")?;
    network.resource("network", ResourceType::host::<Network>(), super::forget)?;
    network.func_new("network-error-code", |_, _, _, results| {
        results
            .iter_mut()
            .for_each(|result| *result = Answer::None.value());
        Ok(())
    })?;
    functions!(linker.instance("wasi:sockets/instance-network@0.2.0")? {
        "instance-network" => |host| {
            let network: Resource<Network> = host.table.push(Object::Network)?;
            Ok((network,))
        };
    });
    Ok(())
}
