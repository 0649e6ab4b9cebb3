// Keys for everything that the mouse can do; the help lists them.

const KEYS = [
  ['j / k', 'next and previous finding', { j: () => step(1), k: () => step(-1) }],
  ['e', 'show the open finding in the charts', { e: () => { if (view.claim !== null && hasTimeline()) showFinding(view.claim); } }],
  ['f o t l s r c', 'findings, one step by lines, time, single steps, stacks, ranks, facts and coverage',
    { f: () => go('findings'), o: () => go('lines'), t: () => go('time'), l: () => go('steps'), s: () => go('stacks'), r: () => go('ranks'), c: () => go('facts') }],
  ['+ - 0', 'zoom in, out, whole run', { '+': () => hasTimeline() && zoomBy(0.5), '=': () => hasTimeline() && zoomBy(0.5), '-': () => hasTimeline() && zoomBy(2), 0: () => hasTimeline() && zoom(...whole) }],
  ['← →', 'earlier, later', { ArrowLeft: () => hasTimeline() && pan(-0.4), ArrowRight: () => hasTimeline() && pan(0.4) }],
  ['d', 'light or dark', { d: changeShade }],
  ['?', 'this help', { '?': () => byId('help').showModal() }],
];

function go(id) {
  if (byId(id).hidden) return;
  byId(id).scrollIntoView();
  writeLink(id);
}

function step(by) {
  const found = Array.from(byId('findings').querySelectorAll('details.finding'));
  if (!found.length) return;
  const now = found.findIndex((details) => details.contains(document.activeElement));
  const next = found[Math.max(0, Math.min(found.length - 1, now + by))];
  next.open = true;
  next.querySelector('summary').focus();
  writeLink(next.id);
}

function buildHelp() {
  byId('help').append(
    element('h2', { id: 'help-title' }, 'Keys'),
    element('dl', {}, KEYS.map(([keys, meaning]) => [element('dt', {}, element('kbd', {}, keys)), element('dd', {}, meaning)])),
    element('button', { click: () => byId('help').close() }, 'Close'));
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId('help').open) return;
  if (event.key.startsWith('Arrow') && event.target !== document.body) return;
  for (const [, , actions] of KEYS) {
    if (!Object.hasOwn(actions, event.key)) continue;
    event.preventDefault();
    actions[event.key]();
    return;
  }
});
