// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0
//
// node look.mjs PAGE PICTURES: opens a page at three widths in both themes, and prints a line of JSON for each: ms until it could be
// used, overflow in pixels, what the console said, requests, and what axe found. Pictures go to PICTURES-WIDTH-THEME.png. At the
// end it moves the cursor of a chart with the keys, and zooms with the mouse, which must change the other charts, and back with Escape.
import fs from "node:fs";
import puppeteer from "puppeteer-core";

const [page, pictures] = process.argv.slice(2);
const axe = fs.readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
for (const [width, height, mobile] of [[1280, 900, false], [800, 1000, false], [390, 844, true]]) {
  for (const theme of ["light", "dark"]) {
    const tab = await browser.newPage();
    await tab.setViewport({ width, height, isMobile: mobile, hasTouch: mobile });
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    const console = [], requests = [];
    tab.on("console", message => { if (message.type() !== "log") console.push(message.text()); });
    tab.on("pageerror", error => console.push(String(error)));
    tab.on("request", request => requests.push(request.url()));
    await tab.goto("file://" + page);
    await tab.waitForFunction("document.documentElement.dataset.ready === 'true'");
    const ready = await tab.evaluate("performance.now()");
    const overflow = await tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    const charts = await tab.evaluate("document.querySelectorAll('.chart canvas').length");
    await tab.screenshot({ path: `${pictures}-${width}-${theme}.png`, fullPage: true });

    // Keys move the cursor: the legend says whether they did. Dragging zooms all charts over time, Escape resets them: the
    // picture of another chart says whether they did.
    await tab.focus("#load");
    for (let i = 0; i < 3; i++) await tab.keyboard.press("ArrowRight");
    const legend = await tab.evaluate("document.querySelector('#load .u-legend .u-value').textContent");
    const other = () => tab.evaluate("document.querySelector('#inflight canvas').toDataURL()");
    const whole = await other(), box = await (await tab.$("#load .u-over")).boundingBox();
    await tab.mouse.move(box.x + box.width / 4, box.y + 50);
    await tab.mouse.down();
    await tab.mouse.move(box.x + box.width / 2, box.y + 50, { steps: 5 });
    await tab.mouse.up();
    await tab.evaluate("new Promise(requestAnimationFrame)");
    const zoomed = await other() !== whole;
    await tab.focus("#load");
    await tab.keyboard.press("Escape");
    await tab.evaluate("new Promise(requestAnimationFrame)");
    const back = await other() === whole;
    const dark = await tab.evaluate("document.documentElement.classList.contains('dark')");
    await tab.click("#theme");
    const toggled = await tab.evaluate("document.documentElement.classList.contains('dark')");

    const client = await tab.createCDPSession();
    await client.send("Page.setBypassCSP", { enabled: true });
    await tab.reload();
    await tab.waitForFunction("document.documentElement.dataset.ready === 'true'");
    await tab.evaluate(axe + ";0");
    const violations = await tab.evaluate("axe.run().then(r => r.violations.map(v => ({ impact: v.impact, id: v.id, example: v.nodes[0].html.slice(0, 200) })))");
    process.stdout.write(JSON.stringify({
      width, theme, ready, overflow, charts, legend, zoomed, back, dark, toggled, console,
      requests: requests.filter(r => r !== "file://" + page && !r.startsWith("data:")), violations,
    }) + "\n");
    await tab.close();
  }
}
await browser.close();
