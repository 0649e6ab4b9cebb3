// Each place has a link: #finding-RULE, #time/FROM/TO, #steps/ID, and the sections' own.

function writeLink(target) {
  try {
    history.replaceState(null, '', '#' + target);
  } catch (error) {
    // Some browsers let a page of a file keep no link: then there is none.
  }
}

function linked() {
  try {
    return decodeURIComponent(location.hash.slice(1)).split('/');
  } catch (error) {
    return [''];  // Somebody's own percent signs.
  }
}

function followLink() {
  const [target, ...more] = linked();
  if (target === 'time' && hasTimeline()) {
    const [from, to] = more.map(Number);
    if (to > from) zoom(from, to);
    byId('time').scrollIntoView();
  } else if (target === 'steps' && data.lanes.length) {
    showLane(Math.max(0, data.lanes.findIndex((found) => found.id === more[0])));
  } else if (target.startsWith('finding-') && byId(target)) {
    byId(target).open = true;
    byId(target).scrollIntoView();
  }
}

// A finding that is opened is drawn into the charts.
function followFinding(event, number) {
  const details = event.currentTarget;
  if (!details.open) return;
  activate(number);
}

function activate(number) {
  if (view.claim === number) return;
  view.claim = number;
  for (const [place, details] of byId('findings').querySelectorAll('details.finding').entries()) {
    if (place === number) details.dataset.active = 'yes'; else delete details.dataset.active;
  }
  if (ready && hasTimeline()) drawTimeline();
}

function claimedRange(number) {
  const parts = prepared().find((panel) => panel.id === 'parts');
  const claim = parts && parts.layers[0].claims && parts.layers[0].claims[number];
  if (!claim) return null;
  const { x } = parts.layers[0];
  const first = claim.findIndex((value) => value > 0);
  const last = claim.findLastIndex((value) => value > 0);
  if (first < 0) return null;
  const edge = 0.05 * (x[last] - x[first]) + (x[x.length - 1] - x[0]) / x.length;
  return [x[first] - edge, x[last] + edge];
}

function hasEvidence(number) {
  const parts = data.panels.find((panel) => panel.id === 'parts');
  const claimed = parts && parts.layers[0].claims[number];
  return Boolean(claimed) || data.panels.some((panel) => panel.id === 'states');
}

function showFinding(number) {
  activate(number);
  const range = claimedRange(number);
  if (range) zoom(...range);
  else {
    const states = prepared().find((panel) => panel.id === 'states');
    if (states) zoom(states.layers[0].x[0], states.layers[0].x[states.layers[0].x.length - 1]);
  }
  byId('time').scrollIntoView();
}
