//! Numbers as people write them.

/// A whole number as people write large ones: with underscores, or with a power of ten such as 1e9 or 2.5e6.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((number, power)) = text.split_once(['e', 'E']) else {
        return if digits(&text) { text.parse().ok() } else { None };
    };
    let (front, fraction) = number.split_once('.').unwrap_or((number, ""));
    let power = power.strip_prefix('+').unwrap_or(power);
    if front.is_empty() || ![front, fraction, power].into_iter().all(digits) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let zeros = power.parse::<usize>().ok()?.checked_sub(fraction.len())?;
    // No number below 2^64 has more than 20 digits.
    if zeros > 19 { None } else { format!("{front}{fraction}{}", "0".repeat(zeros)).parse().ok() }
}
