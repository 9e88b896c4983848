// The entry of vendor/uplot.js.
export { default } from "uplot";
