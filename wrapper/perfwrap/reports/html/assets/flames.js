// Stacks: the wider, the more samples, or the more time.

const GROUPS = {
  'GPU busy': '#009e73', 'GPU not recorded': '#7f8c8d', 'DataLoader workers': '#cc79a7', 'waiting for batches': PARTS.data, 'making batches': PARTS.data,
  'forward pass': PARTS.forward, 'backward pass': PARTS.backward, optimizer: PARTS.optimizer, sync: PARTS.sync, "the program's own Python": PARTS.python,
};

function buildFlames() {
  if (!data.flames) return;
  byId('stacks').hidden = false;
  byId('stacks').append(
    ...heading('stacks', 'Python stacks, by ' + data.flames.by, fixed(data.flames.total, 9) + ' samples by ' + data.flames.source +
      '. Width is the share of samples. Click a frame to zoom in, and the top frame to zoom out. Frames of libraries are grey.'),
    element('div', { class: 'chart', id: 'flame-chart' }));
  charts.push(() => drawStacks('flame-chart', data.flames));
}

function frameColour(label, kind, place) {
  if (kind === 'all') return colour('grid');
  if (kind === 'part') return PARTS[label];
  if (kind === 'line') return isDark() ? '#4b4536' : '#e9e0cc';
  if (kind === 'group') return GROUPS[label] || CURVES[place % CURVES.length];
  return /site-packages|dist-packages|<frozen|\/lib\/python/.test(label) ? (isDark() ? '#4a5561' : '#c9d1d9') : '#56b4e9';
}

function frameName(label) {
  const found = /^(.*?) \((.*):(\d+)\)$/.exec(label);
  return found ? found[1] + ' ' + found[2].split('/').pop() + ':' + found[3] : label;
}

function drawStacks(chart, { parent, label, samples, amount, kind }) {
  const depth = [];
  parent.forEach((above, place) => { depth[place] = above < 0 ? 0 : depth[above] + 1; });
  const deepest = Math.max(...depth);
  Plotly.react(chart, [{
    type: 'icicle', branchvalues: 'total', ids: label.map((_, place) => 'n' + place), parents: parent.map((above) => (above < 0 ? '' : 'n' + above)),
    labels: label.map((text) => plain(short(frameName(text), 80), 100)), values: samples, tiling: { orientation: 'v', pad: 0 }, sort: false,
    text: label.map((text) => plain(text, 90)), textinfo: 'label', customdata: amount || samples.map((count) => fixed(count, 9) + ' samples'), hovertemplate: '%{text}<br>%{customdata}, %{percentRoot:.1%}<extra></extra>',
    textposition: 'middle left', pathbar: { visible: false }, leaf: { opacity: 1 },
    marker: { colors: label.map((text, place) => frameColour(text, kind[place], place)), line: { width: 0.6, color: colour('paper') } },
  }], layout({ height: Math.min(900, 40 + 22 * (deepest + 1)), margin: { l: 0, r: 0, t: 4, b: 4 }, uniformtext: { minsize: 10, mode: 'hide' } }), CONFIG);
}
