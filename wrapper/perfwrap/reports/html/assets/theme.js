// Colours: Okabe and Ito's palette, which colour-blind readers can tell apart, in both shades.

const PARTS = {
  data: '#e69f00', transfer: '#f0e442', forward: '#0072b2', backward: '#56b4e9', recompute: '#44aa99', optimizer: '#009e73', sync: '#d55e00',
  checkpoint: '#cc79a7', validation: '#8f7ee7', compile: '#a5673f', gc: '#7f8c8d', profiler: '#999933', perfwrap: '#c0c6cc', python: '#5b6b7b',
  unknown: '#9aa5b1',
};
const MEANINGS = {
  data: 'waiting for batches', transfer: 'copies between devices', forward: 'forward pass', backward: 'backward pass', recompute: 'second forward pass of activation checkpointing',
  optimizer: 'optimizer step', sync: 'waiting for values (.item() and similar)', checkpoint: 'saving or loading', validation: 'validation',
  compile: 'compiling', gc: 'garbage collection', profiler: "the program's own torch.profiler", perfwrap: 'overhead of perfwrap', python: 'Python code between the phases',
  unknown: 'not recorded what the program did',
};
const STATES = {
  busy: '#009e73', data: '#e69f00', sync: '#d55e00', transfer: '#f0e442', dispatch: '#56b4e9', queued: '#8f7ee7',
  python: '#5b6b7b', checkpoint: '#cc79a7', validation: '#8f7ee7', gc: '#7f8c8d', compile: '#a5673f', optimizer: '#0072b2', profiler: '#c0c6cc',
  allocation: '#999933', collective: '#882255', waiting: '#44aa99', host: '#5b6b7b', between_steps: '#ddcc77', unknown: '#9aa5b1',
};
const CATEGORIES = Object.assign({}, PARTS, {
  step: '#c0c6cc', kernel: '#999933', copy: '#f0e442', memset: '#c0c6cc', collective: '#8f7ee7', other: '#9aa5b1',
});
// Each kind of mark has its colour and, by its place here, its shape.
const MARKS = {
  epoch: '#0072b2', 'slow step': '#d55e00', checkpoint: PARTS.checkpoint, 'garbage collection': PARTS.gc, compilation: PARTS.compile,
  recompilation: '#e69f00', 'recompile limit': '#d55e00', 'graph break': '#8f7ee7', 'compilation failed': '#d55e00', 'NaN or infinity': '#d55e00',
  'out of memory': '#d55e00', 'GPU error': '#d55e00',
};
const CURVES = ['#0072b2', '#e69f00', '#009e73', '#d55e00', '#cc79a7', '#56b4e9', '#8f7ee7', '#7f8c8d'];
const DARK_CURVES = { '#0072b2': '#4ca3dd' };

const charts = [];
const asked = window.matchMedia('(prefers-color-scheme: dark)');
const SHADES = ['auto', 'light', 'dark'];
let choice = 'auto';

// Charts on paper are as wide as A4 and Letter have room for, in CSS pixels.
const PAPER_WIDTH = 680;
let onPage = false;

function isDark() {
  return document.documentElement.dataset.shade === 'dark';
}

function setShade() {
  const dark = choice === 'dark' || (choice === 'auto' && asked.matches);
  document.documentElement.dataset.shade = dark ? 'dark' : 'light';
}

function changeShade() {
  choice = SHADES[(SHADES.indexOf(choice) + 1) % SHADES.length];
  setShade();
  byId('shade').textContent = 'Theme: ' + choice;
  redraw();
}

function redraw() {
  for (const draw of charts) draw();
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function curve(hue) {
  return isDark() && DARK_CURVES[hue] ? DARK_CURVES[hue] : hue;
}

// Black or white, whichever can be read on a colour.
function ink(hex) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16) / 255);
  return 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 > 0.24 ? '#111111' : '#ffffff';
}

function layout(more) {
  return Object.assign({
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour('ink') },
    hoverlabel: { bgcolor: colour('raised'), bordercolor: colour('line'), font: { color: colour('ink'), size: 12 }, align: 'left' },
    margin: { l: 56, r: 12, t: 8, b: 36 },
  }, more, onPage ? { width: PAPER_WIDTH, autosize: false } : { autosize: true });
}

function axis(more) {
  return Object.assign({
    gridcolor: colour('grid'), linecolor: colour('line'), zeroline: false, tickfont: { color: colour('quiet'), size: 11 },
  }, more);
}

const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false, doubleClick: 'reset', scrollZoom: false };

function isNarrow() {
  return onPage || window.innerWidth <= 640;
}

setShade();
asked.addEventListener('change', () => { setShade(); redraw(); });
