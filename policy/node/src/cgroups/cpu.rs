//! From CPUs to what the kernel is told: shares, quota and weight.
//!
//! Shares are the kubelet's unit (1024 to a CPU, between 2 and 262144); cgroup v2 knows weights (1 to 10000).
//! Two curves lead from one to the other: the straight line that the kubelet still uses for its own levels, and the newer one of runc and crun, which maps 1024 shares to the kernel's default of 100.

/// The fewest shares.
pub const MIN_SHARES: u64 = 2;
/// The most shares.
pub const MAX_SHARES: u64 = 262_144;
/// Shares of one CPU.
const SHARES_PER_CPU: u64 = 1024;
/// The shortest quota in microseconds.
const MIN_QUOTA_US: u64 = 1000;

/// The curve from shares to weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// The straight line: 1024 shares are weight 39.
    #[default]
    Old,
    /// The quadratic one of runc 1.3.2, crun 1.23 and later: 1024 shares are weight 100.
    New,
}

impl Curve {
    /// The weight for `shares`; 0 shares mean "unset" and give 0.
    #[must_use]
    pub fn weight(self, shares: u64) -> u64 {
        match self {
            Curve::Old => old_weight(shares),
            Curve::New => new_weight(shares),
        }
    }
}

/// Shares for thousandths of a CPU.
#[must_use]
pub fn shares(milli: u64) -> u64 {
    milli
        .saturating_mul(SHARES_PER_CPU)
        .checked_div(1000)
        .unwrap_or(0)
        .clamp(MIN_SHARES, MAX_SHARES)
}

/// Quota in microseconds for thousandths of a CPU within a period; 0 means that none is to be set.
#[must_use]
pub fn quota(milli: u64, period_us: u64) -> u64 {
    if milli == 0 {
        return 0;
    }
    (milli.saturating_mul(period_us) / 1000).max(MIN_QUOTA_US)
}

/// The shares that the straight line maps to `weight`, rounded down.
#[must_use]
pub fn old_shares(weight: u64) -> u64 {
    if weight == 0 { 0 } else { (weight.min(10_000) - 1) * 262_142 / 9999 + MIN_SHARES }
}

fn old_weight(shares: u64) -> u64 {
    match shares {
        0 => 0,
        MAX_SHARES.. => 10_000,
        _ => 1 + (shares.max(MIN_SHARES) - MIN_SHARES) * 9999 / 262_142,
    }
}

/// `ceil(10^((l² + 125·l)/612 − 7/34))` with `l = log2(shares)`, in fixed point: this crate has no floating-point functions.
fn new_weight(shares: u64) -> u64 {
    match shares {
        0 => return 0,
        1..=MIN_SHARES => return 1,
        MAX_SHARES.. => return 10_000,
        _ => {}
    }
    let l = log2(shares);
    // 7/34 is 126/612.
    let exponent = (times(l, l) + 125 * l - 126 * ONE) / 612;
    let power = exp2(times(exponent, LOG2_10));
    // What is a whole number in exact arithmetic (1024 shares) must not become the next one by the last bits.
    let weight = (power - TOLERANCE).div_ceil(ONE);
    u64::try_from(weight).unwrap_or(10_000)
}

/// Bits behind the point; the square of the largest logarithm, 18, must fit 128 bits.
const BITS: u32 = 58;
const ONE: u128 = 1 << BITS;
/// Far above the error of the arithmetic (some 2⁻⁴²), far below the distance of any weight from the next whole number.
const TOLERANCE: u128 = 1 << (BITS - 34);
const LN_2: u128 = 199_786_072_581_291_494;
const LOG2_10: u128 = 957_480_584_338_323_631;

fn times(a: u128, b: u128) -> u128 {
    (a * b) >> BITS
}

/// The binary logarithm of a number above 0, bit by bit: squaring doubles the logarithm.
fn log2(number: u64) -> u128 {
    let whole = number.ilog2();
    let mut rest = (u128::from(number) << BITS) >> whole;
    let mut log = u128::from(whole) << BITS;
    for bit in (0..BITS).rev() {
        rest = times(rest, rest);
        if rest >= 2 * ONE {
            rest >>= 1;
            log |= 1 << bit;
        }
    }
    log
}

/// Two to the power of a small number.
fn exp2(exponent: u128) -> u128 {
    let (whole, part) = (exponent >> BITS, exponent & (ONE - 1));
    let x = times(part, LN_2);
    let (mut sum, mut term) = (ONE, ONE);
    // The 25th term of the series is below the last bit.
    for n in 1..25 {
        term = times(term, x) / n;
        sum += term;
    }
    sum << whole
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn shares_and_quota_have_their_bounds() {
        assert_eq!([0, 1, 2, 250, 1000, 300_000].map(shares), [2, 2, 2, 256, 1024, 262_144]);
        assert_eq!(shares(u64::MAX), 262_144);
        let quotas = [(0, 100_000), (5, 100_000), (10, 100_000), (250, 100_000), (1500, 50_000)];
        assert_eq!(
            quotas.map(|(milli, period)| quota(milli, period)),
            [0, 1000, 1000, 25_000, 75_000]
        );
    }

    #[test]
    fn the_straight_line_and_its_inverse() {
        let line = [0, 1, 2, 1024, 2048, 262_143, 262_144, 300_000].map(|s| Curve::Old.weight(s));
        assert_eq!(line, [0, 1, 1, 39, 79, 9999, 10_000, 10_000]);
        for weight in 1..=10_000 {
            let shares = old_shares(weight);
            let back = Curve::Old.weight(shares);
            assert!(back == weight || back + 1 == weight, "{weight} is {shares} shares is {back}");
        }
        assert_eq!((old_shares(1), old_shares(39), old_shares(10_000)), (2, 998, 262_144));
    }

    /// The formula in floating point, as the runtimes compute it.
    fn by_floats(shares: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "shares fit a double exactly")]
        let l = (shares as f64).log2();
        let power = 10_f64.powf((l * l + 125.0 * l) / 612.0 - 7.0 / 34.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 10000"
        )]
        let weight = power.ceil() as u64;
        weight
    }

    #[test]
    fn the_new_curve_is_the_runtimes_for_every_number_of_shares() {
        assert_eq!([0, 1, 2, 1024, 262_144].map(|s| Curve::New.weight(s)), [0, 1, 1, 100, 10_000]);
        for shares in 3..MAX_SHARES {
            assert_eq!(Curve::New.weight(shares), by_floats(shares), "{shares} shares");
        }
    }
}
