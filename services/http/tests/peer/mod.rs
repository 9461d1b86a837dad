//! Both sides: the service, and a server.

use contract::{Call, Grant, HttpGrant, Service, conformance::service};
use egress::testing::{self, Server};
use millpond_service_http::Http;
use secrets::{Secrets, Values};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The service, its runtime and its secrets.
pub(crate) struct Ours {
    pub(crate) service: Arc<Http>,
    pub(crate) secrets: Secrets,
    _runtime: Runtime,
    _folder: TempDir,
}

impl Ours {
    pub(crate) fn start() -> Self {
        let runtime = testing::runtime().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(folder.path()).unwrap();
        Self {
            service: Arc::new(Http::new(
                runtime.handle().clone(),
                Values::of(folder.path().to_owned()),
                4096,
            )),
            secrets,
            _runtime: runtime,
            _folder: folder,
        }
    }
}

/// Both sides, as the suite wants them.
pub(crate) struct Peer {
    pub(crate) ours: Ours,
    pub(crate) server: Server,
}

pub(crate) fn host(host: &str) -> HttpGrant {
    HttpGrant {
        host: host.to_owned(),
        headers: Vec::new(),
        clear_text: false,
    }
}

impl service::Peer for Peer {
    fn service(&self) -> Arc<dyn Service> {
        self.ours.service.clone()
    }

    fn open(&self, grant: &mut Grant) {
        grant.http.push(host("127.0.0.1"));
    }

    fn open_elsewhere(&self, grant: &mut Grant) {
        grant.http.push(host("localhost"));
    }

    fn ask(&self, call: &mut Call, what: service::Asked) {
        call.operation = "POST".to_owned();
        call.target = self.server.uri(&format!("/{}", Server::path(what)));
    }

    fn reached(&self) -> usize {
        self.server.reached()
    }

    fn under_way(&self) -> usize {
        self.server.under_way()
    }
}
