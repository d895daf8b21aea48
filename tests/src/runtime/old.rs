//! A runtime from before CRI v1: `runtime.v1alpha2.RuntimeService`, of which ebb only asks the version.

use super::Shared;
use super::world::World;
use ebb_cri::wire::runtime as v1;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

#[derive(Clone, Debug)]
pub(crate) struct OldRuntimeService {
    shared: Shared,
}

impl OldRuntimeService {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared }
    }
}

impl NamedService for OldRuntimeService {
    const NAME: &'static str = "runtime.v1alpha2.RuntimeService";
}

impl Service<http::Request<Body>> for OldRuntimeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let version = OldVersion { shared: self.shared.clone() };
        Box::pin(async move {
            if !request.uri().path().ends_with("/Version") {
                return Ok(Status::unimplemented("the fake knows no more of v1alpha2").into_http());
            }
            let codec = tonic_prost::ProstCodec::default();
            Ok(Grpc::new(codec).unary(version, request).await)
        })
    }
}

struct OldVersion {
    shared: Shared,
}

impl UnaryService<v1::VersionRequest> for OldVersion {
    type Response = v1::VersionResponse;
    type Future = BoxFuture<Response<v1::VersionResponse>, Status>;

    fn call(&mut self, _: Request<v1::VersionRequest>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            let version = |world: &mut World| {
                let (name, version) = world.flavour.name_and_version();
                Ok(v1::VersionResponse {
                    version: "0.1.0".to_owned(),
                    runtime_name: name.to_owned(),
                    runtime_version: version.to_owned(),
                    runtime_api_version: "v1alpha2".to_owned(),
                })
            };
            shared.serve("Version", "", version).await
        })
    }
}
