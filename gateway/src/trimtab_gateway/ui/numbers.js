// What can be computed from two looks at the same counters.

/** Coefficient of variation of output tokens per capacity over the engines; null before any. */
export function variation(engines) {
  const shares = engines.map((each) => each.output_tokens / each.capacity);
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  if (shares.length < 2 || !(mean > 0)) return null;
  const spread = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / shares.length;
  return Math.sqrt(spread) / mean;
}

/** Growth of `read(model)` per second between two looks; null when there is no earlier one of the same gateway. */
export function rate(now, before, read) {
  if (before === null || before.epoch !== now.epoch) return null;
  const seconds = now.uptime_s - before.uptime_s;
  return seconds > 0 ? Math.max(0, read(now) - read(before)) / seconds : null;
}

export function sum(counts) {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}

export function rounded(value) {
  if (value === null) return "–";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(value >= 10 ? 1 : 2);
}

export function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of parts) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}
