//! Why a call has no good answer, as the caller has to know it.

use serde::Deserialize;
use std::time::Duration;

/// A call without a good answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing came in time.
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    /// The API server could not be reached, which names it, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The API server answered with an error.
    #[error("{code}: {message}{}", advice(*.code))]
    Status {
        /// The HTTP code.
        code: u16,
        /// Its message.
        message: String,
        /// The name of the object that it speaks of: without one, a 404 is about the resource.
        name: Option<String>,
        /// When to ask again, where it says so.
        retry_after: Option<Duration>,
        /// It is a disruption budget that refuses.
        by_budget: bool,
        /// A precondition on the UID was not met.
        other_uid: bool,
    },
    /// The answer was not what was asked for.
    #[error("answer not understood: {0}")]
    Answer(String),
}

/// The cause that the Eviction subresource names where a budget refuses; a 429 without it is about the API server's load (`CauseType` in `policy/v1`).
const BUDGET: &str = "DisruptionBudget";

/// How rustls calls a certificate that none of the known authorities has signed.
const UNKNOWN_ISSUER: &str = "invalid peer certificate: UnknownIssuer";

/// What the API server does not say itself.
fn advice(code: u16) -> &'static str {
    if code == 401 {
        "; it does not accept this token or certificate: has it expired, or is it another cluster's?"
    } else {
        ""
    }
}

/// A `Status` object.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    message: String,
    code: u16,
    details: Details,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    name: Option<String>,
    retry_after_seconds: Option<u64>,
    causes: Vec<Cause>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    /// Its kind, in spite of the name.
    reason: String,
    field: String,
}

/// Characters of a message that are kept.
const LONGEST_MESSAGE: usize = 1000;

/// The longest wait that an API server is granted: whatever stands before it may answer any number.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

impl Failure {
    /// What an answer with an error says; `retry_after` is its header.
    pub(crate) fn of(code: u16, body: &[u8], retry_after: Option<u64>) -> Self {
        let status: Status = serde_json::from_slice(body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
            ..Status::default()
        });
        // A deletion and an eviction are answered by 409: "Precondition failed: UID in precondition: …" (`Preconditions.Check` in apiserver's `storage`) or "the UID in the precondition …" (`BeforeDelete` in its `registry/rest`); a patch by 422 about that field. Names of objects, which messages quote, have neither spaces nor colons.
        let said = ["UID in precondition", "UID in the precondition", "metadata.uid: "];
        let other_uid = said.iter().any(|said| status.message.contains(said))
            || status.details.causes.iter().any(|cause| cause.field == "metadata.uid");
        // What the stream of a watch says has its code in the object alone.
        let code = if code == 200 { status.code } else { code };
        let retry_after = retry_after.or(status.details.retry_after_seconds);
        Self::Status {
            code,
            // Whatever stands before the API server may say as much as it likes, and records show it.
            message: status.message.chars().take(LONGEST_MESSAGE).collect(),
            name: status.details.name.filter(|name| !name.is_empty()),
            retry_after: retry_after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT)),
            by_budget: status.details.causes.iter().any(|cause| cause.reason == BUDGET),
            other_uid,
        }
    }

    /// What kept a request from being sent, or its answer from coming, with what to check.
    pub(crate) fn unreached(server: &str, error: &dyn std::error::Error) -> Self {
        let why = chain(error);
        let advice = if why.contains(UNKNOWN_ISSUER) {
            "; its certificate is not signed by the authority that is to sign it (`certificate-authority` in the kubeconfig, `ca.crt` of a service account): is it another cluster's?"
        } else {
            ""
        };
        Self::Connection(format!("{}: {why}{advice}", server.trim_end_matches('/')))
    }

    /// The HTTP code; `None` without an answer.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// When the API server wants to be asked again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether a disruption budget refuses: 429 is also the answer of an API server that has too much to do.
    #[must_use]
    pub fn is_by_budget(&self) -> bool {
        matches!(self, Self::Status { code: 429, by_budget: true, .. })
    }

    /// Whether a precondition on the UID was not met: another object has the name by now. A deletion is answered by 409, a patch by 422.
    #[must_use]
    pub fn is_about_uid(&self) -> bool {
        matches!(self, Self::Status { other_uid: true, .. })
    }

    /// Whether the object of this name is not there: a 404 that does not name it is about its resource, and proves nothing.
    #[must_use]
    pub fn is_absence_of(&self, of: &str) -> bool {
        matches!(self, Self::Status { code: 404, name: Some(name), .. } if name == of)
    }
}

/// An error with all that is below it, each part once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string().trim_start_matches("ServiceError: ").to_owned();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        below = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_404_that_names_the_object_says_that_it_is_absent() {
        let named = br#"{"kind":"Status","code":404,"details":{"name":"web","kind":"pods"}}"#;
        assert!(Failure::of(404, named, None).is_absence_of("web"));
        assert!(!Failure::of(404, named, None).is_absence_of("other"));
        assert!(!Failure::of(404, b"404 page not found", None).is_absence_of("web"));
        let resource = br#"{"kind":"Status","code":404,"details":{},"message":"the server could not find the requested resource"}"#;
        assert!(!Failure::of(404, resource, None).is_absence_of("web"));
        assert!(!Failure::of(403, named, None).is_absence_of("web"));
    }

    #[test]
    fn retry_after_comes_from_the_header_or_from_the_details() {
        let details = br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":7}}"#;
        assert_eq!(Failure::of(429, details, None).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(Failure::of(429, details, Some(2)).retry_after(), Some(Duration::from_secs(2)));
        assert_eq!(Failure::of(500, b"", None).retry_after(), None);
        assert_eq!(Failure::of(429, b"", Some(u64::MAX)).retry_after(), Some(LONGEST_WAIT));
    }

    /// As kube-apiserver 1.20.2 and 1.36 answer.
    #[test]
    fn a_budget_that_refuses_is_told_from_an_api_server_that_has_too_much_to_do() {
        let budget = br#"{"kind":"Status","code":429,"reason":"TooManyRequests","message":"Cannot evict pod as it would violate the pod's disruption budget.","details":{"causes":[{"reason":"DisruptionBudget","message":"The disruption budget db needs 1 healthy pods and has 0 currently"}]}}"#;
        assert!(Failure::of(429, budget, None).is_by_budget());
        let busy = br#"{"kind":"Status","code":429,"reason":"TooManyRequests","message":"too many requests, please try again later","details":{"retryAfterSeconds":1}}"#;
        assert!(!Failure::of(429, busy, None).is_by_budget());
        assert!(
            !Failure::of(429, b"Too many requests, please try again later.", Some(1))
                .is_by_budget()
        );
    }

    /// As kube-apiserver 1.20.2 answers; messages quote names, and a name may be anything.
    #[test]
    fn another_uid_is_told_from_a_name_that_has_it_in_it() {
        let other = br#"{"kind":"Status","code":409,"reason":"Conflict","message":"Operation cannot be fulfilled on pods \"web\": Precondition failed: UID in precondition: a, UID in object meta: b"}"#;
        assert!(Failure::of(409, other, None).is_about_uid());
        let deleted = br#"{"kind":"Status","code":409,"message":"Operation cannot be fulfilled on pods \"web\": the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated"}"#;
        assert!(Failure::of(409, deleted, None).is_about_uid());
        let patched = br#"{"kind":"Status","code":422,"reason":"Invalid","details":{"causes":[{"reason":"FieldValueInvalid","field":"metadata.uid"}]}}"#;
        assert!(Failure::of(422, patched, None).is_about_uid());
        let budget = br#"{"kind":"Status","code":409,"reason":"Conflict","message":"Operation cannot be fulfilled on poddisruptionbudgets.policy \"druid-broker\": the object has been modified"}"#;
        assert!(!Failure::of(409, budget, None).is_about_uid());
    }

    #[test]
    fn credentials_that_are_not_accepted_are_told_as_such() {
        let body = br#"{"kind":"Status","code":401,"message":"Unauthorized"}"#;
        let told = Failure::of(401, body, None).to_string();
        assert!(told.starts_with("401: Unauthorized; it does not accept this token"), "{told}");
    }

    #[test]
    fn an_error_in_the_stream_of_a_watch_has_its_code_in_the_object() {
        let gone = br#"{"kind":"Status","code":410,"message":"too old resource version"}"#;
        assert_eq!(Failure::of(200, gone, None).code(), Some(410));
    }
}
