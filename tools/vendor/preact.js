// The entry of vendor/preact.js: what the console uses of Preact, and htm bound to it.
import htm from "htm";
import { h } from "preact";

export { Component, createContext, Fragment, h, render } from "preact";
export { useCallback, useContext, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
export const html = htm.bind(h);
