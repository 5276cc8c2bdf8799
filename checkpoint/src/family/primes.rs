//! Runs of consecutive primes with a given sum: the sizes of the heads of a hashed n-gram table.

/// Bases for which Miller and Rabin's test has no false answer below 2^64 (below 3.3e24, to be exact).
const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

pub(super) fn is_prime(n: u64) -> bool {
    if let Some(base) = BASES.into_iter().find(|base| n.is_multiple_of(*base)) {
        return n == base;
    }
    if n < 2 {
        return false;
    }
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(n)) as u64;
    let twos = (n - 1).trailing_zeros();
    BASES.into_iter().all(|base| {
        let (mut square, mut exponent, mut power) = (base % n, (n - 1) >> twos, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = times(power, square);
            }
            square = times(square, square);
            exponent >>= 1;
        }
        // A prime has no square root of 1 but 1 and -1.
        power == 1
            || (0..twos).any(|_| {
                let found = power == n - 1;
                power = times(power, power);
                found
            })
    })
}

/// Every run of `count` consecutive primes whose sum is `sum`, or up to `slack` less, in rising order. Without slack
/// there is one at most, since sums of runs rise with their first prime.
pub(super) fn runs(sum: u64, count: usize, slack: u64) -> Vec<Vec<u64>> {
    let Some(mean) = sum.checked_div(count as u64) else { return Vec::new() };
    // The mean of a run lies between its first and its last prime: `count` primes on each side of the lowest and the
    // highest mean hold every run.
    let lowest = sum.saturating_sub(slack) / count as u64;
    let mut primes: Vec<u64> = (0..lowest).rev().filter(|n| is_prime(*n)).take(count).collect();
    primes.reverse();
    primes.extend((lowest..=mean).filter(|n| is_prime(*n)));
    primes.extend((mean.saturating_add(1)..=u64::MAX).filter(|n| is_prime(*n)).take(count));
    let fits = |run: &&[u64]| {
        let got: u128 = run.iter().map(|prime| u128::from(*prime)).sum();
        got <= sum.into() && got + u128::from(slack) >= sum.into()
    };
    primes.windows(count).filter(fits).map(<[u64]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn primes_are_told_from_what_looks_like_them() {
        let sieve: Vec<u64> = (0..2000u64).filter(|n| *n > 1 && (2..*n).all(|d| !n.is_multiple_of(d))).collect();
        assert_eq!((0..2000).filter(|n| is_prime(*n)).collect::<Vec<_>>(), sieve);
        // Carmichael numbers; strong pseudoprimes to the first 2, 4, 9 and 11 or so of the bases; squares of primes.
        let composites = [
            561,
            6601,
            1_373_653,
            3_215_031_751,
            341_550_071_728_321,
            3_825_123_056_546_413_051,
            4_294_967_291 * 4_294_967_291,
            u64::MAX,
            41 * 41,
        ];
        for n in composites {
            assert!(!is_prime(n), "{n}");
        }
        for n in [(1 << 61) - 1, 18_446_744_073_709_551_557, 4_294_967_291, 16_000_057] {
            assert!(is_prime(n), "{n}");
        }
    }

    #[test]
    fn degenerate_requests_have_no_runs() {
        for (sum, count, slack) in [(0, 1, 0), (1, 1, 0), (0, 16, 127), (5, 0, 0), (u64::MAX, 1, 0), (16, 24, 0)] {
            assert_eq!(runs(sum, count, slack), Vec::<Vec<u64>>::new(), "{sum} {count} {slack}");
        }
        assert_eq!(runs(2, 1, 0), [[2]]);
        assert_eq!(runs(2 + 3 + 5 + 7, 4, 0), [[2, 3, 5, 7]]);
        assert_eq!(runs(18, 4, 1), [[2, 3, 5, 7]], "one row of padding");
    }

    proptest! {
        #[test]
        fn runs_are_found_from_their_sum(start in 0..1u64 << 58, count in 1..30usize, slack in 0..128u64) {
            let run: Vec<u64> = (start..).filter(|n| is_prime(*n)).take(count).collect();
            let sum: u64 = run.iter().sum();
            prop_assert_eq!(runs(sum, count, 0), vec![run.clone()]);
            prop_assert!(runs(sum + slack, count, slack).contains(&run));
        }

        #[test]
        fn small_runs_are_all_found(sum in 0..3000u64, count in 1..8usize, slack in 0..128u64) {
            let primes: Vec<u64> = (0..4000).filter(|n| is_prime(*n)).collect();
            let all = primes.windows(count).filter(|run| {
                let got: u64 = run.iter().sum();
                (sum.saturating_sub(slack)..=sum).contains(&got)
            });
            prop_assert_eq!(runs(sum, count, slack), all.map(<[u64]>::to_vec).collect::<Vec<_>>());
        }
    }
}
