//! A container runtime in this process: CRI on a unix socket in a temporary directory, and containerd's stores beside it.
//!
//! ```text
//! test ── looks at, changes ──► World ◄── answers from ── services ◄── socket ◄── the agent under test
//!                                 └─ faults: hang, refuse, be late; and every call is written down
//! ```
//! What real runtimes do is proved in the guests of `vm-tests`; here are the situations that they cannot be brought
//! into at will, and numbers of objects that no guest could hold.

mod answers;
mod containerd;
mod cri;
mod images;
mod old;
mod world;

pub use world::{
    FakeContainer, FakeImage, FakeLayer, FakeSandbox, Fault, Flavour, World, short_digest,
};

use anyhow::{Context, Result};
use ebb_cri::wire::containerd::services::content::v1::content_server::ContentServer;
use ebb_cri::wire::containerd::services::events::v1::events_server::EventsServer;
use ebb_cri::wire::containerd::services::images::v1::images_server::ImagesServer;
use ebb_cri::wire::containerd::services::snapshots::v1::snapshots_server::SnapshotsServer;
use ebb_cri::wire::runtime::image_service_server::ImageServiceServer;
use ebb_cri::wire::runtime::runtime_service_server::RuntimeServiceServer;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// A runtime that lives as long as this value.
#[derive(Debug)]
pub struct FakeRuntime {
    dir: TempDir,
    shared: Shared,
    /// Gone while the runtime is stopped.
    server: Option<Runtime>,
}

/// What every service and the test see.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    world: Arc<Mutex<World>>,
}

impl Shared {
    /// A test that failed while it held the world must not hide behind the failures of others.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeRuntime {
    /// Start a runtime with nothing in it.
    ///
    /// # Errors
    /// When the directory or the socket cannot be made.
    pub fn start(flavour: Flavour) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory for the fake runtime")?;
        let shared = Shared { world: Arc::new(Mutex::new(World::new(flavour))) };
        let mut runtime = Self { dir, shared, server: None };
        runtime.resume()?;
        Ok(runtime)
    }

    /// The socket's path.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime.sock")
    }

    /// A directory of its own, for log files and the like.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Look at what is there, or change it as if from elsewhere.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// End the runtime as SIGKILL would: connections break, the socket stays behind. Containers live on.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }

    /// Start it again, on the same socket.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn resume(&mut self) -> Result<()> {
        let path = self.socket();
        if path.exists() {
            std::fs::remove_file(&path).context("cannot remove the old socket")?;
        }
        let server = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the fake runtime")?;
        let _inside = server.enter();
        let listener = UnixListener::bind(&path).context("cannot listen as the fake runtime")?;
        server.spawn(serve(listener, self.shared.clone()));
        self.server = Some(server);
        Ok(())
    }
}

impl Drop for FakeRuntime {
    /// A tokio runtime may not be dropped inside another, where tests may well be.
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(listener: UnixListener, shared: Shared) {
    let flavour = shared.world().flavour;
    let connections = UnixListenerStream::new(listener);
    let mut server = Server::builder();
    // The test sees the end of a server as a broken connection; there is nobody else to tell.
    let _ = match flavour {
        Flavour::Containerd14 => {
            let old = server.add_service(old::OldRuntimeService::new(shared));
            old.serve_with_incoming(connections).await
        }
        Flavour::ContainerdWithoutCri => {
            let own = server.add_service(ImagesServer::new(shared));
            own.serve_with_incoming(connections).await
        }
        _ => {
            let router = server
                .add_service(RuntimeServiceServer::new(shared.clone()))
                .add_service(ImageServiceServer::new(shared.clone()));
            let router = if flavour.is_containerd() {
                router
                    .add_service(ContentServer::new(shared.clone()))
                    .add_service(EventsServer::new(shared.clone()))
                    .add_service(ImagesServer::new(shared.clone()))
                    .add_service(SnapshotsServer::new(shared))
            } else {
                router
            };
            router.serve_with_incoming(connections).await
        }
    };
}
