//! How many workloads one answer tells of: a client must be able to take it in, however many there are and whatever they call themselves.

use crate::wire::ListWorkloadsResponse;
use prost::Message as _;

/// Workloads of one answer.
const MOST: usize = 512;

/// Bytes of them.
const BYTES: usize = 1 << 20;

/// The first workloads of `answer`: at most `limit` unless that is 0, and never more than an answer has room for. The rest is counted.
pub(crate) fn at_most(limit: u32, mut answer: ListWorkloadsResponse) -> ListWorkloadsResponse {
    let limit = match limit {
        0 => MOST,
        limit => usize::try_from(limit).unwrap_or(MOST).min(MOST),
    };
    let mut bytes = 0;
    let fits = answer.workloads.iter().take(limit).take_while(|workload| {
        bytes += workload.encoded_len();
        bytes <= BYTES
    });
    let told = fits.count();
    let rest = u32::try_from(answer.workloads.len() - told).unwrap_or(u32::MAX);
    answer.workloads.truncate(told);
    answer.left_out = answer.left_out.saturating_add(rest);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Workload;

    fn answer(names: impl Iterator<Item = String>) -> ListWorkloadsResponse {
        let workloads = names.map(|name| Workload { name, ..Workload::default() }).collect();
        ListWorkloadsResponse { workloads, ..ListWorkloadsResponse::default() }
    }

    fn told(limit: u32, answer: ListWorkloadsResponse) -> (usize, u32) {
        let told = at_most(limit, answer);
        (told.workloads.len(), told.left_out)
    }

    #[test]
    fn no_answer_has_more_than_it_has_room_for_and_the_rest_is_counted() {
        let short = |count: usize| answer((0..count).map(|n| n.to_string()));
        assert_eq!(told(0, short(3)), (3, 0));
        assert_eq!(told(2, short(3)), (2, 1));
        assert_eq!(told(u32::MAX, short(1000)), (512, 488));
        let (few, rest) = told(0, answer((0..500).map(|_| "/x".repeat(4000))));
        assert!(few < 500 && few > 100, "{few}");
        assert_eq!(few + rest as usize, 500);
    }
}
