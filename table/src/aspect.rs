//! How two things differ that should be equal, for messages that say so.

/// What something is in one respect: the name of the respect, and how to say it.
pub type Aspect<'a, T> = (&'static str, &'a dyn Fn(&T) -> String);

/// The first aspect in which two things differ: its name, what was got and what was expected.
pub fn difference<T>(got: &T, expected: &T, aspects: &[Aspect<'_, T>]) -> Option<(&'static str, String, String)> {
    aspects.iter().map(|(what, of)| (*what, of(got), of(expected))).find(|(_, got, expected)| got != expected)
}
