// Curves come in levels, the finest first; what is shown is the finest that the visible part has room for.

const ROOM = 1500;

function opened(curve) {
  const names = Object.keys(curve).filter((name) => curve[name] && curve[name].b);
  const found = {};
  for (const name of names) found[name] = numbers(curve[name]);
  for (const name of ['parts', 'claims']) {
    if (!curve[name]) continue;
    found[name] = {};
    for (const [key, packed] of Object.entries(curve[name])) found[name][key] = numbers(packed);
  }
  return found;
}

function firstAt(x, value) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// The level for a part of the axis, and from which to which point: one more on either side, so that lines reach the edge.
function fitting(levels, from, to) {
  for (const level of levels) {
    const begin = Math.max(0, firstAt(level.x, from) - 1);
    const end = Math.min(level.x.length, firstAt(level.x, to) + 1);
    if (end - begin <= ROOM || level === levels[levels.length - 1]) return { level, begin, end };
  }
  return { level: { x: [] }, begin: 0, end: 0 };
}

function cut(values, found) {
  return Array.from(values.subarray(found.begin, found.end));
}

// The same for values that hold until the next point: the last holds until the end.
function held(values, found, last) {
  const taken = cut(values, found);
  if (taken.length && found.end === values.length) taken.push(last === undefined ? taken[taken.length - 1] : last);
  return taken;
}
