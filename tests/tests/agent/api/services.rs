//! What a client that knows nothing of ebb finds out: that the API serves, and what.

use super::Served;
use ebb_api::client::channel;
use tokio::net::UnixStream;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

impl Served {
    /// Whether a service serves, as grpc-health-probe asks.
    fn health(&self, service: &str) -> Result<HealthCheckResponse, tonic::Status> {
        self.api.runtime.block_on(async {
            let stream = UnixStream::connect(&self.api.path).await.unwrap();
            let mut client = HealthClient::new(channel(stream).await.unwrap());
            let request = HealthCheckRequest { service: service.to_owned() };
            client.check(request).await.map(tonic::Response::into_inner)
        })
    }

    /// The answer to one question about the protocol, as grpcurl asks it.
    fn reflect(&self, question: MessageRequest) -> Result<MessageResponse, tonic::Status> {
        self.api.runtime.block_on(async {
            let stream = UnixStream::connect(&self.api.path).await.unwrap();
            let mut client = ServerReflectionClient::new(channel(stream).await.unwrap());
            let request =
                ServerReflectionRequest { host: String::new(), message_request: Some(question) };
            let asked = client.server_reflection_info(tokio_stream::once(request)).await?;
            let answer = asked.into_inner().message().await?.unwrap();
            Ok(answer.message_response.unwrap())
        })
    }
}

#[test]
fn it_serves_while_it_runs() {
    let served = Served::new(&[]);
    for service in ["", "ebb.v1.Agent"] {
        let answer = served.health(service).unwrap();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(served.health("ebb.v9.Agent").unwrap_err().code(), Code::NotFound);
    served.agent.stop();
}

#[test]
fn its_protocol_can_be_asked_of_it() {
    let served = Served::new(&[]);
    let listed = served.reflect(MessageRequest::ListServices(String::new())).unwrap();
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let mut names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
    names.sort();
    let expected = ["ebb.v1.Agent", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
    assert_eq!(names, expected);
    let symbol = MessageRequest::FileContainingSymbol("ebb.v1.Agent.Watch".to_owned());
    let found = served.reflect(symbol).unwrap();
    let MessageResponse::FileDescriptorResponse(files) = found else { panic!("{found:?}") };
    let has = |text: &str| {
        let mut files = files.file_descriptor_proto.iter();
        files.any(|file| file.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    assert!(has("ListWorkloads") && has("WatchResponse"), "the file is another one");
    let symbol = MessageRequest::FileContainingSymbol("ebb.v1.Nobody".to_owned());
    assert_eq!(served.reflect(symbol).unwrap_err().code(), Code::NotFound);
    served.agent.stop();
}
