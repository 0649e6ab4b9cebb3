// The first screen is drawn before plotly is even read; then the charts, one after the other.

let ready = false;

const SECTIONS = [['findings', 'Findings'], ['tried', 'Tried'], ['lines', 'Line by line'], ['time', 'Over time'], ['steps', 'Single steps'], ['stacks', 'Stacks'], ['ranks', 'Ranks'], ['facts', 'Facts']];

function buildNavigation() {
  const links = SECTIONS.filter(([id]) => !byId(id).hidden).map(([id, name]) => element('a', { href: '#' + id }, name));
  byId('top').after(element('nav', { 'aria-label': 'Sections' }, element('div', { class: 'page' }, element('span', { class: 'links' }, links),
    element('button', { id: 'shade', title: 'Key d', click: changeShade }, 'Theme: auto'),
    element('button', { class: 'keyboard', title: 'Key ?', click: () => byId('help').showModal() }, 'Keys'))));
}

drawTop();
drawVerdict();
drawWholeRun();
drawAccount();
drawFindings();
drawTried();
drawLines();
buildTimeline();
buildLanes();
buildFlames();
buildRanks();
drawFacts();
buildHelp();
buildNavigation();
byId('main').append(element('footer', {}, ['perfwrap', data.heading.versions.perfwrap].filter(Boolean).join(' ') + '. This file downloads nothing and sends nothing.'));

// Each chart in a task of its own, so that the page answers in between.
async function drawCharts() {
  for (const draw of charts) {
    draw();
    await new Promise((done) => setTimeout(done, 0));
  }
  ready = true;
  followLink();
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
}

function onPaper(printing) {
  onPage = printing;
  if (printing) {
    for (const details of document.querySelectorAll('details.finding')) details.open = true;
  }
  document.documentElement.dataset.shade = printing ? 'light' : document.documentElement.dataset.shade;
  if (!printing) setShade();
  redraw();
}

document.addEventListener('DOMContentLoaded', drawCharts);
window.addEventListener('hashchange', followLink);
window.addEventListener('beforeprint', () => onPaper(true));
window.addEventListener('afterprint', () => onPaper(false));
