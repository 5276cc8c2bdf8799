//! What a suite says about one backend.

use std::fmt;

/// Environment variable with a list of backends, separated by commas, that must be there: a missing device then is a
/// failure. `cpu` is met by any of `cpu/portable`, `cpu/avx2`, ...
pub const REQUIRE_VARIABLE: &str = "CONDPROG_REQUIRE";

/// The outcome for one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every case gave the expected bits.
    Exact,
    /// Some case did not; each failure in words.
    Failed(Vec<String>),
    /// There is no device here for this backend; nothing was run. In the backend's words.
    NoDevice(String),
}

/// The outcome for one backend, and how much it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The backend.
    pub name: String,
    /// The suite: `decode` or `encode`.
    pub suite: &'static str,
    /// Cases that were run.
    pub cases: usize,
    /// Cases there are.
    pub expected_cases: usize,
    /// Seed of the random cases.
    pub seed: u32,
    /// The outcome.
    pub verdict: Verdict,
}

impl Report {
    pub(crate) fn new(name: &str, suite: &'static str, expected_cases: usize, seed: u32) -> Report {
        Report { name: name.into(), suite, cases: 0, expected_cases, seed, verdict: Verdict::Exact }
    }

    pub(crate) fn fail(&mut self, failure: String) {
        match &mut self.verdict {
            Verdict::Failed(failures) => failures.push(failure),
            _ => self.verdict = Verdict::Failed(vec![failure]),
        }
    }

    /// Closes the count: a backend that ran fewer cases than there are has failed.
    pub(crate) fn close(mut self) -> Report {
        if self.cases != self.expected_cases && !matches!(self.verdict, Verdict::NoDevice(_)) {
            self.fail(format!("{} cases were run, expected {}", self.cases, self.expected_cases));
        }
        self
    }

    /// Ends a test: prints the report.
    ///
    /// # Panics
    /// When a case failed, or there is no device and [`REQUIRE_VARIABLE`] names this backend.
    pub fn assert(&self) {
        println!("{self}");
        let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
        match self.verdict {
            Verdict::Exact => {}
            Verdict::Failed(_) => panic!("{self}"),
            Verdict::NoDevice(_) => {
                assert!(!required.split(',').any(|name| name.trim() == self.name), "{self}, but it is required");
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Failures that are written out; the rest is counted.
        const SHOWN: usize = 20;
        let Report { name, suite, cases, expected_cases, seed, verdict } = self;
        match verdict {
            Verdict::Exact => write!(f, "{name} {suite}: exact, {cases} of {expected_cases} cases"),
            Verdict::NoDevice(why) => write!(f, "{name} {suite}: no device, 0 of {expected_cases} cases ({why})"),
            Verdict::Failed(failures) => {
                write!(f, "{name} {suite}: FAILED, {cases} of {expected_cases} cases run, seed {seed}")?;
                for failure in failures.iter().take(SHOWN) {
                    write!(f, "\n  {failure}")?;
                }
                match failures.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
        }
    }
}

/// The names in a `CONDPROG_REQUIRE` list that the reports do not meet. A name is met by a report of that name or of
/// one below it (`cpu` by `cpu/avx2`) that is exact.
pub fn unmet<'a>(required: &'a str, reports: &[Report]) -> Vec<&'a str> {
    let names = required.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .filter(|name| !reports.iter().any(|report| report.verdict == Verdict::Exact && is_under(&report.name, name)))
        .collect()
}

fn is_under(name: &str, family: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_backends_are_met_only_by_exact_ones() {
        let report = |name: &str, verdict| Report { verdict, ..Report::new(name, "decode", 0, 1) };
        let reports = [
            report("cpu/portable", Verdict::Exact),
            report("cpu/avx2", Verdict::NoDevice(String::new())),
            report("wgpu", Verdict::NoDevice(String::new())),
        ];
        assert_eq!(unmet("cpu, wgpu,cpu/avx2,,cp,cuda", &reports), ["wgpu", "cpu/avx2", "cp", "cuda"]);
        assert!(unmet("", &reports).is_empty());
    }

    #[test]
    fn a_backend_that_ran_too_few_cases_has_failed() {
        let mut report = Report::new("x", "decode", 2, 1);
        report.cases = 1;
        assert!(matches!(report.close().verdict, Verdict::Failed(_)));
    }
}
