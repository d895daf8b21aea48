//! What is answered to each call.

use crate::connection::Client;
use crate::events::{Event, Events};
use crate::incidents;
use crate::pace::{Hand, PIECE};
use crate::watch::{self, Board};
use crate::wire::agent_server::Agent;
use crate::wire::{
    GetDecisionRequest, GetDecisionResponse, GetIncidentRequest, GetIncidentResponse,
    GetNodeRequest, GetNodeResponse, ListIncidentsRequest, ListIncidentsResponse,
    ListWorkloadsRequest, ListWorkloadsResponse, WatchRequest, WatchResponse,
};
use crate::workloads::at_most;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

/// How old an answer about the node may be that is given again: the loop is asked each question ten times a second at most, whoever asks.
const FRESH: Duration = Duration::from_millis(100);

/// How long the loop may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Streams at a time, of all clients together.
const STREAMS: usize = 64;

/// How the loop is asked: resolves to `None` when it does not answer. Must not block.
pub type Ask<T> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<T>> + Send>> + Send + Sync>;

/// What the loop is asked.
pub struct Questions {
    /// How the node stands.
    pub node: Ask<GetNodeResponse>,
    /// Which workloads there are, in the order in which they are told.
    pub workloads: Ask<ListWorkloadsResponse>,
    /// What the latest decision was made of, as a JSON document; `None` where there was no such decision yet.
    pub decision: Ask<Option<Arc<[u8]>>>,
}

/// The latest answers of the loop.
#[derive(Default)]
struct Latest {
    node: Option<(Instant, GetNodeResponse)>,
    workloads: Option<(Instant, ListWorkloadsResponse)>,
    decision: Option<(Instant, Option<Arc<[u8]>>)>,
}

/// The calls of `ebb.v1.Agent`.
pub(crate) struct Calls {
    board: Arc<Board>,
    questions: Questions,
    /// Held while the loop is asked, so that it is asked one thing at a time.
    latest: Mutex<Latest>,
    incidents: Option<PathBuf>,
    streams: Arc<Semaphore>,
    events: Events,
}

impl Calls {
    pub(crate) fn new(
        board: Arc<Board>,
        questions: Questions,
        incidents: Option<PathBuf>,
        events: Events,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        Self { board, questions, latest: Mutex::default(), incidents, streams, events }
    }

    fn directory(&self) -> Result<&Path, Status> {
        let none = || {
            Status::failed_precondition(
                "ebb keeps no incidents: `ebb run --incidents DIR` has it do so",
            )
        };
        self.incidents.as_deref().ok_or_else(none)
    }

    /// A stream to whoever asked, which `hand_out` fills on a task of its own.
    fn stream<T, F, H>(
        &self,
        client: Option<Client>,
        hand_out: H,
    ) -> Result<Response<ReceiverStream<T>>, Status>
    where
        T: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
        H: FnOnce(Hand<T>) -> F,
    {
        let Some(client) = client else {
            return Err(Status::internal("a request without a connection"));
        };
        let Ok(place) = Arc::clone(&self.streams).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!("{STREAMS} streams are open already")));
        };
        // No more than the answer that is to be taken next.
        let (to, stream) = mpsc::channel(1);
        let hand = Hand { to, client, events: self.events.clone() };
        let (work, told) = (hand_out(hand), self.guard());
        tokio::spawn(async move {
            work.await;
            drop((place, told));
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    /// Tells of a panic, when dropped by one: the runtime would say nothing of it.
    fn guard(&self) -> PanicGuard {
        PanicGuard(self.events.clone())
    }
}

/// See [`Calls::guard`].
struct PanicGuard(Events);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell(Event::Panicked);
        }
    }
}

#[async_trait]
impl Agent for Calls {
    type WatchStream = ReceiverStream<Result<WatchResponse, Status>>;
    type GetIncidentStream = ReceiverStream<Result<GetIncidentResponse, Status>>;
    type GetDecisionStream = ReceiverStream<Result<GetDecisionResponse, Status>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let client = request.extensions().get::<Client>().cloned();
        let (board, request) = (Arc::clone(&self.board), request.into_inner());
        self.stream(client, |hand| async move { watch::hand_out(&board, &request, &hand).await })
    }

    async fn get_node(
        &self,
        _: Request<GetNodeRequest>,
    ) -> Result<Response<GetNodeResponse>, Status> {
        let _told = self.guard();
        let mut latest = self.latest.lock().await;
        let answer = fresh_or_asked(&mut latest.node, &self.questions.node).await?;
        let run = self.board.run().to_owned();
        Ok(Response::new(GetNodeResponse { run, ..answer }))
    }

    async fn list_workloads(
        &self,
        request: Request<ListWorkloadsRequest>,
    ) -> Result<Response<ListWorkloadsResponse>, Status> {
        let _told = self.guard();
        let mut latest = self.latest.lock().await;
        let answer = fresh_or_asked(&mut latest.workloads, &self.questions.workloads).await?;
        Ok(Response::new(at_most(request.into_inner().limit, answer)))
    }

    async fn list_incidents(
        &self,
        request: Request<ListIncidentsRequest>,
    ) -> Result<Response<ListIncidentsResponse>, Status> {
        let _told = self.guard();
        let limit = match request.into_inner().limit {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let incidents = incidents::list(self.directory()?, limit).map_err(unreadable)?;
        Ok(Response::new(ListIncidentsResponse { incidents }))
    }

    async fn get_incident(
        &self,
        request: Request<GetIncidentRequest>,
    ) -> Result<Response<Self::GetIncidentStream>, Status> {
        let _told = self.guard();
        let client = request.extensions().get::<Client>().cloned();
        let id = request.into_inner().id;
        let Some(file) = incidents::open(self.directory()?, &id).map_err(unreadable)? else {
            return Err(Status::not_found("there is no incident with this id"));
        };
        self.stream(client, |hand| async move { incidents::hand_out(file, &hand).await })
    }

    async fn get_decision(
        &self,
        request: Request<GetDecisionRequest>,
    ) -> Result<Response<Self::GetDecisionStream>, Status> {
        let _told = self.guard();
        let client = request.extensions().get::<Client>().cloned();
        let mut latest = self.latest.lock().await;
        let document = fresh_or_asked(&mut latest.decision, &self.questions.decision).await?;
        drop(latest);
        let Some(document) = document else {
            return Err(Status::unavailable("nothing has been decided yet; ask again in a moment"));
        };
        self.stream(client, |hand| async move {
            for piece in document.chunks(PIECE) {
                if !hand.over(Ok(GetDecisionResponse { json: piece.to_vec() })).await {
                    return;
                }
            }
        })
    }
}

/// The latest answer while it is fresh, else what the loop answers now.
async fn fresh_or_asked<T: Clone>(
    latest: &mut Option<(Instant, T)>,
    ask: &Ask<T>,
) -> Result<T, Status> {
    if let Some((at, answer)) = latest.as_ref()
        && at.elapsed() < FRESH
    {
        return Ok(answer.clone());
    }
    let answer = timeout(ANSWER, ask()).await.ok().flatten();
    let Some(answer) = answer else {
        return Err(Status::unavailable("the loop did not answer within a second"));
    };
    *latest = Some((Instant::now(), answer.clone()));
    Ok(answer)
}

fn unreadable(error: std::io::Error) -> Status {
    Status::internal(format!("the incidents cannot be read: {error}"))
}
